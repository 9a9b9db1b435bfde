"""What a recipe does to a step: one technique per file."""
