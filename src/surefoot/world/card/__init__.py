"""A card that is not there: `cuda` for an unchanged script, on a machine without a GPU."""
