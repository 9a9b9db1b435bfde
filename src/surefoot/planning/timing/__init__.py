"""Timing: how long operators and whole steps take on this machine."""
