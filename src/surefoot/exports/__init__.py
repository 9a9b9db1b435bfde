"""What export writes besides weights, and how it is compared with the model."""
