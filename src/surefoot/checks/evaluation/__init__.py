"""Evaluation: modes, averages and thresholds of what is measured."""
