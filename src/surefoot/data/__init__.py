"""From files to samples to micro-batches, in an order that a seed decides."""
