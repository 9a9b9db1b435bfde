"""Five ways to run one step: one function each, from a recipe to a record."""
