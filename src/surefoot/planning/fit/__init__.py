"""Fit: which settings of a recipe fit into memory, and which of them is fastest."""
