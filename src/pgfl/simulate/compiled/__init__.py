"""Compiled rounds, an extra: kernels behind the contract of an engine."""
