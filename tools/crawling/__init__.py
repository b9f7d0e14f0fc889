"""Finds operators in the installed torch and transformers, and what each does to the shape of its input."""
