"""Gradients: the graph, its backward passes and what is lost on the way."""
