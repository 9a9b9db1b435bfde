"""Planning: a step traced on fake tensors, once per kind of block, and unrolled to the whole model."""
