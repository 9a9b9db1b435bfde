"""The server of the Model Context Protocol: what a coding assistant may ask of surefoot, and within which limits."""
