"""Save and resume, bit for bit, on any number of ranks."""
