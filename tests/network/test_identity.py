"""Keys and certificates."""

from __future__ import annotations

import stat

import pytest

from pgfl.errors import NetworkError
from pgfl.network.protocol import identity


def test_a_site_keeps_its_key_to_itself(tmp_path):
    certificate = identity.create_site(tmp_path, "north", ["north.example.org"])
    assert stat.S_IMODE((tmp_path / identity.SITE_KEY).stat().st_mode) == 0o600
    assert identity.SiteCertificate.read(tmp_path / identity.SITE_CERTIFICATE) == certificate
    assert b"PRIVATE" not in certificate.pem
    with pytest.raises(NetworkError, match="exists already"):
        identity.create_site(tmp_path, "north", [])


def test_a_client_keeps_its_key_to_itself(tmp_path):
    key = identity.create_client(tmp_path, "ann")
    assert stat.S_IMODE((tmp_path / identity.CLIENT_KEY).stat().st_mode) == 0o600
    assert identity.ClientKey.read(tmp_path / identity.CLIENT_PUBLIC) == key
    assert identity.public_key_of(identity.read_client_key(tmp_path / identity.CLIENT_KEY)) == key
    with pytest.raises(NetworkError, match="exists already"):
        identity.create_client(tmp_path, "ann")


@pytest.mark.parametrize("name", ["", "../x", "a b", "x" * 64, "-x", "né"])
def test_names_are_safe_in_paths_and_logs(tmp_path, name):
    with pytest.raises(NetworkError, match="name"):
        identity.create_site(tmp_path, name, [])


def test_what_is_no_certificate_is_one_sentence(tmp_path):
    (tmp_path / "x.crt").write_text("hello")
    with pytest.raises(NetworkError, match="not the certificate"):
        identity.SiteCertificate.read(tmp_path / "x.crt")
    with pytest.raises(NetworkError, match="cannot be read"):
        identity.SiteCertificate.read(tmp_path / "none.crt")
    first, second = (identity.create_site(tmp_path / n, n, []).pem for n in ("a", "b"))
    with pytest.raises(ValueError, match="exactly one"):
        identity.SiteCertificate.parse(first + second)


def test_what_is_no_key_is_one_sentence(tmp_path):
    (tmp_path / "x.pub").write_text("ssh-ed25519 AAAA")
    with pytest.raises(NetworkError, match="not a client's public key"):
        identity.ClientKey.read(tmp_path / "x.pub")
    with pytest.raises(NetworkError, match=r"cannot be read.* make a client with a new name"):
        identity.read_client_key(tmp_path / "none")
    (tmp_path / "x.key").write_text("nothing")
    with pytest.raises(NetworkError, match="not a client's key"):
        identity.read_client_key(tmp_path / "x.key")
