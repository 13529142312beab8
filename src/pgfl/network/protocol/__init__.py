"""The protocol between sites and clients: wire format, frames over TLS, messages and identities."""
