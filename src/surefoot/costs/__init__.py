"""Counts times datasheet: pure arithmetic, no torch."""
