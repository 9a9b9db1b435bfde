"""A simulated CUDA GPU: its differences from a CPU, as policies on fake CPU tensors."""
