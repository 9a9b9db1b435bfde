"""The corpus: programs with a silent bug, and programs without, that the checks are measured on."""
