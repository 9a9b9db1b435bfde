"""The words with which steps, phases and modules are marked in a trace."""

STEP, PHASE, MODULE = "surefoot.step", "surefoot.phase:", "surefoot.module:"
"""A whole step; a phase that begins, by number; a module at work, by name."""
