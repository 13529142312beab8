"""Secure aggregation without I/O: a server learns the sum over the clients of one cluster, and nothing else of them.

After Bonawitz et al. (2017), with full pairwise masks. Every client adds to its noised contribution a mask of its own
and one mask for each other client, which that client subtracts. Seeds of all masks are shared out in advance, so that
the sum survives clients that drop out. Every secret lives in memory only and serves one round.
"""

from pgfl.errors import require_extra

require_extra("Masked sums need cryptography and PyCryptodome", "network", "cryptography", "Crypto")
