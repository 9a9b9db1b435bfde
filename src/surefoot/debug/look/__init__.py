"""Look: what the modules and tensors of one step look like."""
