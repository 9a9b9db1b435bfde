"""After training: the trained model, the program that export writes, how outputs compare, and text from a model."""
