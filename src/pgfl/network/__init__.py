"""The real network: sites and clients as separate processes that exchange frames over TLS."""

from pgfl.errors import require_extra

require_extra("The network needs cryptography and PyCryptodome", "network", "cryptography", "Crypto")
