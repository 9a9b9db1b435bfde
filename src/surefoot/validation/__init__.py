"""Validation: plans held against measurements on this machine, recipe by recipe, each in a process of its own."""
