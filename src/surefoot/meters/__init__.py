"""Meters: each counts one resource while a step runs, on fake and on real tensors alike."""
