"""A client: it keeps its data, pays for every answer from its own ledger, and refuses what it cannot promise."""
