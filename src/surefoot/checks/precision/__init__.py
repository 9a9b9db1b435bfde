"""Precision: numbers too coarse, too large or too small for their type."""
