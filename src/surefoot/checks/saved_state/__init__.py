"""Saved state: checkpoints, resumes and what they forget."""
