"""Reference recipes: each is one readable file that contains its model."""
