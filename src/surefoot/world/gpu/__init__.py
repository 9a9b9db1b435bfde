"""A CUDA GPU that is not there: what it does otherwise than a CPU, stated as policies on fake CPU tensors."""
