"""World: where a step runs: on real tensors, on fake ranks, or on a simulated GPU."""
