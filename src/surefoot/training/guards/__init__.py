"""What a training run does in trouble: one kind of trouble per file."""
