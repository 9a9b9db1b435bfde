"""Text: tokens, padding, masks and targets of language models."""
