"""Planning: what is known before a run, from a step on fake tensors, traced once per kind of block."""
