"""Events: what happens in a training loop, seen from outside: which phase, which module, which line of the user."""
