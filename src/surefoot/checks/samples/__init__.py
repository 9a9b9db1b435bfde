"""Samples: data sets, loaders, their order and their randomness."""
