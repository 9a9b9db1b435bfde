"""Training scripts as people write them; none of them knows of surefoot."""
