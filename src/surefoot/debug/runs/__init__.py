"""Runs: two runs or scripts that should agree: the first step, operation and line where they do not."""
