"""Memory: what held it at an out-of-memory error or in a snapshot, tensor by tensor and line by line."""
