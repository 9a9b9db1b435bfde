"""A recipe: what you write, what its values may be, and how a name on the command line becomes one."""
