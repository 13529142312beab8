"""Algorithms: client rules and server rules, the pairs of the two, and the roles that run them without I/O."""
