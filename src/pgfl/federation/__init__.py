"""Federations: servers on a graph, clients, clusters and data, from tables, generators or a folder on disk."""
