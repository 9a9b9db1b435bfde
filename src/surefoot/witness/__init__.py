"""Witness: follows a loop and gathers evidence, one subject per file. It reads, and changes nothing."""
