"""A package, so that other distributions that install a `tests` of their own do not take its place."""
