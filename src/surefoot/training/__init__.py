"""Training: the parts of a run: its directory, its resumption, its guards and what its ranks exchange."""
