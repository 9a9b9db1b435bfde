"""Five ways to run one step: a function each, from a recipe to a record."""
