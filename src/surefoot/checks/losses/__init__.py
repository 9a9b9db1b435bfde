"""Losses: what a loss is given and what comes out of it."""
