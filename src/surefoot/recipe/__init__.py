"""A recipe: what you write, which values it allows, and how the command line finds it by name."""
