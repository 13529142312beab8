"""Every nonce, key, token and challenge outside of masking: enough bits of the system's randomness, and never twice.

The noise itself is tested elsewhere; here, that processes which were forked from one draw other noise.
"""

from __future__ import annotations

import asyncio
import base64
import os
import random
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization

from pgfl import synthetic_regression
from pgfl.network.protocol import identity
from pgfl.network.protocol.messages import Challenge
from pgfl.network.protocol.streams import _ClientStream
from pgfl.network.protocol.wire import Limits, decode
from pgfl.privacy import lattice
from pgfl.privacy.noise import SecureNoise
from pgfl.results.state import RecordDigests
from pgfl.simulate.checkpoint import Checkpoints
from pgfl.studio.serving import Guard

DRAWS = 4096
LEAST_BYTES = 16  # 128 bits
CHILDREN = 4
FEDERATION = synthetic_regression(servers=1, clients_per_server=1, clusters=1, dimension=1, samples=(1, 1))


def challenge():
    """The nonce as a caller receives it."""
    sent = []
    stream = _ClientStream(SimpleNamespace(site="north"), "192.0.2.1")
    asyncio._set_running_loop(SimpleNamespace(call_later=lambda *_: None))
    try:
        stream.on_open(SimpleNamespace(send=sent.append))
    finally:
        asyncio._set_running_loop(None)
    nonce = bytes.fromhex(decode(sent[0], Limits(1), (Challenge,)).header.nonce)
    assert stream._nonce == nonce, "the signature must be checked against what was sent"
    return nonce


def decoded(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def studio_token():
    return decoded(Guard(None, 8377).new_token())


def studio_cookie():
    return decoded(Guard(None, 8377)._session)


def key_of_records():
    """The key of the digests by which records are recognised."""
    return RecordDigests.of(FEDERATION).key


def id_of_a_run():
    """The id under which it is noted where a run goes on."""
    simulator = SimpleNamespace(layout=SimpleNamespace(runs=[SimpleNamespace(number=0)]))
    return bytes.fromhex(Checkpoints(Path("run"), "fingerprint", 1)._run_id(simulator))


def noise_on_the_lattice():
    return lattice.with_noise(np.zeros(4, dtype=np.int64), 1.0).tobytes()


def float_safe_noise():
    return SecureNoise(4).release(np.zeros((1, 4)), np.ones(1), np.zeros(1, dtype=int), 1).tobytes()


def private_bytes(key):
    return key.private_numbers().private_value.to_bytes(48, "big")


def client_key(folder):
    identity.create_client(folder, "ann")
    return private_bytes(identity.read_client_key(folder / identity.CLIENT_KEY))


def site_key(folder):
    identity.create_site(folder, "north", [])
    pem = (folder / identity.SITE_KEY).read_bytes()
    return private_bytes(serialization.load_pem_private_key(pem, password=None))


TEXTS = {
    "challenge": challenge,
    "studio token": studio_token,
    "studio cookie": studio_cookie,
    "key of records": key_of_records,
    "id of a run": id_of_a_run,
}
KEYS = {"client key": client_key, "site key": site_key}
NOISE = {"noise on the lattice": noise_on_the_lattice, "float-safe noise": float_safe_noise}
of_texts = pytest.mark.parametrize("draw", TEXTS.values(), ids=TEXTS.keys())
of_keys = pytest.mark.parametrize("draw", KEYS.values(), ids=KEYS.keys())


def check_bytes(drawn):
    """No value twice, every byte of it takes all values about equally often, and no bit follows from the others."""
    assert len(set(drawn)) == len(drawn)
    values = np.array([list(value) for value in drawn], dtype=np.uint8)
    for shown in (values, values[1:] ^ values[:-1]):  # the second finds counters
        for column in shown.T:
            counts = np.bincount(column >> (0 if len(shown) > 2000 else 4), minlength=16)
            expected = len(shown) / len(counts)
            freedom = len(counts) - 1
            assert ((counts - expected) ** 2 / expected).sum() < freedom + 14 * np.sqrt(2 * freedom)
    bits = np.unpackbits(values[:600], axis=1)
    assert rank(bits) == min(bits.shape[1], len(bits))


def rank(bits):
    """Over GF(2); repeated, padded or combined bits lower it."""
    rows = [int.from_bytes(np.packbits(row).tobytes(), "big") for row in bits]
    found = 0
    while rows:
        pivot = rows.pop()
        if pivot:
            found += 1
            lowest = pivot & -pivot
            rows = [row ^ pivot if row & lowest else row for row in rows]
    return found


@of_texts
def test_thousands_of_draws_are_distinct_and_uniform_in_every_byte(draw):
    drawn = [draw() for _ in range(DRAWS)]
    assert min(map(len, drawn)) >= LEAST_BYTES
    check_bytes(drawn)


@of_texts
def test_every_bit_of_the_systems_randomness_changes_the_secret(draw, monkeypatch):
    """That is what entropy is: statistics would not notice 32 bits that a hash makes longer."""
    supplied = []

    def supply(flipped):
        def urandom(count):
            raw = bytearray(count)
            if flipped is not None and len(supplied) == which:
                raw[flipped // 8] ^= 1 << flipped % 8
            supplied.append(count)
            return bytes(raw)

        return urandom

    def drawn_with(flipped):
        supplied.clear()
        monkeypatch.setattr(random, "_urandom", supply(flipped))
        monkeypatch.setattr(os, "urandom", supply(flipped))
        return draw()

    which = -1
    secret, counts = drawn_with(None), tuple(supplied)
    which = counts.index(max(counts)) if draw is not studio_token else len(counts) - 1  # its guard draws a cookie first
    assert counts[which] >= LEAST_BYTES
    changed = {drawn_with(bit) for bit in range(8 * counts[which])}
    assert len(changed | {secret}) == 8 * counts[which] + 1


@of_keys
def test_keys_are_distinct_and_uniform_in_every_byte(draw, tmp_path):
    check_bytes([draw(tmp_path / str(number)) for number in range(2048)])


@pytest.mark.forks
def test_children_draw_other_secrets_than_their_parent_and_each_other(tmp_path):
    """A generator that was seeded before a fork would repeat itself in every child."""
    for name in (*TEXTS, *KEYS, *NOISE):
        drawn = drawn_in_children(name, tmp_path / name)
        assert len(drawn) == 1 + 9 * CHILDREN, name
        assert len(set(drawn)) == len(drawn), name


def drawn_in_children(name, folder):
    """What a process draws before and after each of its children, and what they draw."""

    def draw_one(place):
        return KEYS[name](folder / place) if name in KEYS else {**TEXTS, **NOISE}[name]()

    drawn = [draw_one("before")]
    for child in range(CHILDREN):
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                for number in range(8):
                    os.write(writing, draw_one(f"{child}-{number}").hex().encode() + b"\n")
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as lines:
            drawn += [bytes.fromhex(line) for line in lines]
        os.waitpid(pid, 0)
        drawn.append(draw_one(f"after-{child}"))
    return drawn


def test_a_token_is_drawn_anew_for_every_client_and_every_guard():
    guard = Guard(None, 8377)
    assert len({guard.new_token(), guard.new_token(), guard._session, Guard(None, 8377)._session}) == 4


def test_serial_numbers_of_certificates_are_distinct(tmp_path):
    from cryptography import x509

    pems = [identity.create_site(tmp_path / str(number), "north", []).pem for number in range(16)]
    serials = {x509.load_pem_x509_certificate(pem).serial_number for pem in pems}
    assert len(serials) == 16
    assert min(serial.bit_length() for serial in serials) > 120


@pytest.mark.parametrize(
    "weak",
    [
        lambda: bytes(32),
        lambda: os.urandom(2) * 16,
        lambda: os.urandom(4) * 8,
        lambda: os.urandom(31) + b"\x00",
        lambda: bytes(byte & 0x7F for byte in os.urandom(32)),
    ],
    ids=["constant", "16 bits", "32 bits", "a byte of zeros", "seven bits of eight"],
)
def test_the_check_finds_weak_secrets(weak):
    with pytest.raises(AssertionError):
        check_bytes([weak() for _ in range(DRAWS)])
