"""Models: layers, parameters and buffers, and what they do with a batch."""
