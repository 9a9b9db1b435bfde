"""Loop: forwards and gradients, which every subject shares."""
