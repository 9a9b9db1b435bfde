"""Checks: silent bugs, by subject. Observers watch, probes disturb copies, rules judge the facts."""
