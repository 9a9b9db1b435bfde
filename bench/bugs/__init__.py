"""Runs the programs of the corpus: with surefoot, with other checkers, and alone."""
