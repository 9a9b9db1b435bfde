"""Training: the parts of a run: its directory, its resume, its guards and the exchange between its ranks."""
