"""The real network: sites and clients as separate processes. Flower for membership, gRPC streams for rounds."""
