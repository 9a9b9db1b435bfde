"""Probe: what a training responds to: an unchanged script runs again, each time with one thing changed."""
