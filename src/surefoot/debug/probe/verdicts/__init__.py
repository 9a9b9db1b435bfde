"""Verdicts: what the results of each experiment mean, without torch and without running anything."""
