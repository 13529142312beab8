"""A package that extends pgfl."""
