"""The names that mark steps, phases and modules in a trace."""

STEP, PHASE, MODULE = "surefoot.step", "surefoot.phase:", "surefoot.module:"
"""A whole step; the start of a phase, by number; a running module, by name."""
