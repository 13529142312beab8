"""The cryptography of masks, all of it from libraries: X25519, HKDF, ChaCha20 and AEAD, HMAC, Shamir's sharing.

Every secret that is shared out is a seed of 16 bytes, because that is one block of pycryptodome's sharing. Keys are
derived from seeds with HKDF, under a purpose that is used for nothing else.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from Crypto.Protocol.SecretSharing import Shamir
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand
from numpy.typing import NDArray

Words = NDArray[np.uint64]
"""Numbers modulo 2⁶⁴; NumPy's sums of them wrap as they should."""

SEED_BYTES: Final = 16
KEY_BYTES: Final = 32  # of public keys
TAG_BYTES: Final = 32
_WORD: Final = np.dtype("<u8")
_ONE_USE: Final = bytes(16)  # the counter and nonce of a keystream whose key is used once
_NONCE_BYTES: Final = 12


def fresh_seed() -> bytes:
    """A secret from the system's randomness."""
    return secrets.token_bytes(SEED_BYTES)


def digest(purpose: str, content: Mapping[str, Any]) -> str:
    """SHA-256 of one spelling of a content, which never equals that of another purpose."""
    text = json.dumps([purpose, dict(content)], sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def derived(secret: bytes, purpose: str, about: str = "") -> bytes:
    """A key of 32 bytes for one purpose, and for what it is about."""
    return HKDF(hashes.SHA256(), 32, salt=None, info=f"pgfl masking v2 {purpose} {about}".encode()).derive(secret)


def mask(key: bytes, size: int) -> Words:
    """`size` numbers modulo 2⁶⁴: ChaCha20's keystream of a key of 32 bytes, which is used for nothing else."""
    stream = Cipher(algorithms.ChaCha20(key, _ONE_USE), mode=None).encryptor().update(bytes(size * _WORD.itemsize))
    return np.frombuffer(stream, dtype=_WORD).astype(np.uint64, copy=False)


def self_mask_key(seed: bytes) -> bytes:
    """The key of a client's own mask."""
    return derived(seed, "self mask")


def common_mask_key(pairwise: bytes, terms: str) -> bytes:
    """The key of the mask that two clients have in common in a round on these terms."""
    expanded = HKDFExpand(hashes.SHA256(), 32, info=f"pgfl masking v2 common mask {terms}".encode())
    return expanded.derive(pairwise)  # which is uniform already


def mask_key_pair(seed: bytes) -> X25519PrivateKey:
    """The key pair from which a client's pairwise masks of one round follow."""
    return X25519PrivateKey.from_private_bytes(derived(seed, "pairwise key"))


def agreed(private: X25519PrivateKey, public: bytes, purpose: str, about: str) -> bytes:
    """The key that two clients have in common for one purpose; `ValueError` for a public key that fixes it.

    `about` names the two of them: X25519 alone gives the same secret for a key and for copies of it that are spelled
    otherwise, so whoever announced a copy would share masks that are not its own.
    """
    return derived(private.exchange(X25519PublicKey.from_public_bytes(public)), purpose, about)


def is_agreeable(public: bytes) -> bool:
    """Whether a public key leaves a secret to agree on."""
    try:
        agreed(X25519PrivateKey.generate(), public, "trial", "")
    except ValueError:
        return False
    return True


def sealed(key: bytes, text: bytes, about: bytes) -> bytes:
    """Encrypted and authenticated, together with what it is about."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, text, about)


def opened(key: bytes, box: bytes, about: bytes) -> bytes | None:
    """What `sealed` closed; None if anything was altered."""
    try:
        return ChaCha20Poly1305(key).decrypt(box[:_NONCE_BYTES], box[_NONCE_BYTES:], about)
    except (InvalidTag, ValueError):
        return None


def tag(key: bytes, sender: str, message: str) -> bytes:
    """What shows the other one of two clients that share a key that the sender stands by a message.

    It names the sender, so that nobody is shown a tag of its own as the other's.
    """
    return hmac.digest(key, f"pgfl masking v2 consent {message} {sender}".encode(), "sha256")


def is_tagged(key: bytes, sender: str, message: str, shown: bytes) -> bool:
    """Whether the sender tagged a message."""
    return hmac.compare_digest(tag(key, sender, message), shown)


def split(seed: bytes, threshold: int, holders: int) -> list[bytes]:
    """One share for each holder, in order; any `threshold` of them give the seed, fewer give nothing."""
    return [share for _, share in Shamir.split(threshold, holders, seed, ssss=False)]


def combined(shares: Sequence[tuple[int, bytes]]) -> bytes:
    """The seed behind as many shares as the threshold, each with its holder's place, counted from 0."""
    return bytes(Shamir.combine([(place + 1, share) for place, share in shares], ssss=False))
