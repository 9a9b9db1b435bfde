"""Guards: how a training run reacts to trouble, one kind of trouble per file."""
