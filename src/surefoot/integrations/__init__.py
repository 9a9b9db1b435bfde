"""Integrations: callbacks that keep a training by another library as a run directory; one library per file."""
