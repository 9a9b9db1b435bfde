"""Programs with a silent bug, and programs without: what `silent_bugs.py` holds the checks against."""
