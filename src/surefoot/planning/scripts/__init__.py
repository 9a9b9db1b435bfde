"""Scripts: the plan of an unchanged script, which runs up to a few updates on a card that is not there."""
