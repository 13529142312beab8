"""`docs/reference/frames.md` is the format that the code speaks: messages, fields and test vectors."""

from __future__ import annotations

import re

import numpy as np
import pytest

from pgfl.network.protocol import identity as pinned_tls
from pgfl.network.protocol import masked_messages, messages
from pgfl.network.protocol.identity import ClientKey
from pgfl.network.protocol.messages import (
    BETWEEN_SITE_AND_CLIENT,
    BETWEEN_SITES,
    Acknowledged,
    Answer,
    Challenge,
    Decline,
    Request,
)
from pgfl.network.protocol.wire import VERSION, Limits, Malformed, decode, encode
from tests.command_line import ROOT

PAGE = (ROOT / "docs" / "reference" / "frames.md").read_text("utf-8")
MASKED = (*masked_messages.TO_CLIENT, *masked_messages.TO_SITE)
EVERY = (*BETWEEN_SITE_AND_CLIENT, *BETWEEN_SITES, *MASKED)
NONCE, LIMITS = bytes(range(32)), Limits(dimension=2)
VECTORS = {
    "CHALLENGE": (Challenge(site="north", nonce=NONCE.hex()), None),
    "REQUEST": (Request(round=7, server_clients=3, known=True, accepted=None), [[1.0, -0.5]]),
    "ANSWER": (Answer(round=7, release=4, clean=False), [[0.25, 2.0], [0.0, -1.0]]),
    "DECLINE": (Decline(round=8, reason="the budget is spent", final=True), None),
    "ACKNOWLEDGED": (Acknowledged(site="south", training="00" * 32, round=7, degree=2, finished=False), None),
}


def block(after):
    """The indented lines that follow the line which begins like this."""
    lines = PAGE[re.search(rf"^{after}", PAGE, flags=re.MULTILINE).start() :].split("\n\n")[1]
    return [line.strip() for line in lines.splitlines()]


def test_every_message_and_field_is_on_the_page():
    rows = re.findall(r"^\| (\d+) \| (\w+) \|(.*)$", PAGE, flags=re.MULTILINE)
    assert [(int(number), name) for number, name, _ in rows] == sorted((each.kind, each.kind.name) for each in EVERY)
    written = {name: re.sub(r"the (model|accepted).*|one model.*", "", rest) for _, name, rest in rows}
    for message in EVERY:
        named = re.findall(r"`(\w+)`", written[message.kind.name])
        inherited = list(messages.Request.model_fields) if message is masked_messages.MaskedRequest else []
        assert inherited + named == list(message.model_fields), message


def test_the_page_has_the_version_and_the_protocol():
    assert f"version **{VERSION}**" in PAGE
    assert f"`{pinned_tls.PROTOCOL}`" in PAGE


@pytest.mark.parametrize("name", VECTORS)
def test_a_vector_is_what_is_written_and_read(name):
    header, vectors = VECTORS[name]
    written = bytes.fromhex("".join(block(f"{name} (of|to|by)")))
    assert encode(header, None if vectors is None else np.array(vectors)) == written
    read = decode(written, LIMITS, EVERY)
    assert read.header == header
    assert read.vectors.tolist() == (vectors or [])


def test_the_signature_is_valid():
    signature = bytes.fromhex("".join(block("A signature of the nonce")))
    key = " ".join(PAGE.split("    ecdsa-")[1].split("\n\n")[0].replace("\n    ", "").split())
    assert ClientKey.parse(f"ecdsa-{key}".encode()).verifies(signature, "11" * 32, NONCE)
    assert not ClientKey.parse(f"ecdsa-{key}".encode()).verifies(signature, "12" * 32, NONCE)


def test_what_the_page_says_is_refused_is_refused():
    first, answer = (encode(*map_of) for map_of in (VECTORS["CHALLENGE"], (VECTORS["ANSWER"][0], np.ones((2, 2)))))
    doubled = first[10:-1] + b',"nonce":"00"}'
    for wrong in (
        first[:-1], b"\x51" + first[1:], first[:4] + b"\x0a" + first[5:],
        first[:6] + len(doubled).to_bytes(4, "little") + doubled,
        answer[:-32] + bytes.fromhex("000000000000f07f") + answer[-24:],
    ):  # fmt: skip
        with pytest.raises(Malformed):
            decode(wrong, LIMITS, EVERY)
