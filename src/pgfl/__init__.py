"""Personalised graph federated learning with differential privacy."""
