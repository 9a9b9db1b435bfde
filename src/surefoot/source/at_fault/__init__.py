"""At fault: searches of the user's source for the expression that made a bug, by subject."""
