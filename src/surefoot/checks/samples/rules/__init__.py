"""One bug per file: pure functions from facts to findings."""
