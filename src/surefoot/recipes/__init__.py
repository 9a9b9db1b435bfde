"""Reference recipes: each one readable file with its model inside."""
