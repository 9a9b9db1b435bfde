"""Errors: what a raised error means in terms of the user's code, read from the traceback after it was raised."""
