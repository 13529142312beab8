"""PGFL inside a Flower federation: a ServerApp that plays a graph of servers, and clients with their own ledgers."""
