"""The real network: sites and clients as separate processes. Flower for membership, frames over TLS for rounds."""
