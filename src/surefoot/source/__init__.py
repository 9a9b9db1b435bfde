"""Source: what the user's code says, read with `ast` and not run."""
