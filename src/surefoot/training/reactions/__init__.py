"""What happens after every step of a run: each file holds reactions to one subject."""
