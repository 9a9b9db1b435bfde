"""Events: what a training loop is doing: the phase, the module and the line of user code, seen from outside."""
