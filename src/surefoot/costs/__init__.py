"""Turns counts and datasheets into seconds, dollars and advice: pure arithmetic, no torch."""
