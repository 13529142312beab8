"""Frames over TLS, in memory: what is said arrives, whoever is not pinned is refused, and nothing long is kept."""

from __future__ import annotations

import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from hypothesis import given, settings
from hypothesis import strategies as st

from pgfl.network.protocol import identity
from pgfl.network.protocol import identity as pinned_tls
from pgfl.network.protocol.tls_frames import BadConnection, TlsFrames

LONGEST = 100_000


class Site:
    """A certificate and its key, in files."""

    def __init__(self, folder, name):
        self.certificate = identity.create_site(folder, name, [])
        self.files = folder / identity.SITE_CERTIFICATE, folder / identity.SITE_KEY


@pytest.fixture(scope="module")
def north(tmp_path_factory):
    return Site(tmp_path_factory.mktemp("north"), "north")


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return Site(tmp_path_factory.mktemp("other"), "north")


def ends(site, calling=None, listening=None, name="north.pgfl"):
    """Both ends of a connection to a site, before the handshake."""
    caller = TlsFrames(calling or pinned_tls.client_context(site.certificate.pem), LONGEST, name)
    return caller, TlsFrames(listening or pinned_tls.server_context(*site.files), LONGEST)


def exchange(here, there, cut=1 << 30):
    """Carry bytes both ways, in pieces, until there are none; returns the frames that each end received."""
    received = {here: [], there: []}
    for end in (here, there):
        end.receive(b"")
    while moving := [(end, data) for end in (here, there) if (data := end.outgoing())]:
        for end, data in moving:
            to = there if end is here else here
            for start in range(0, len(data), cut):
                received[to] += to.receive(data[start : start + cut])
    return received[here], received[there]


def connected(site):
    caller, listener = ends(site)
    exchange(caller, listener)
    assert caller.ready
    assert listener.ready
    return caller, listener


@settings(max_examples=60, deadline=None)
@given(lengths=st.lists(st.integers(0, 40_000), max_size=6), cut=st.integers(1, 50_000))
def test_frames_arrive_as_they_were_sent_however_their_bytes_are_cut(north, lengths, cut):
    caller, listener = connected(north)
    frames = [bytes([number]) * length for number, length in enumerate(lengths)]
    for frame in frames:
        caller.send(frame)
        listener.send(frame)
    assert exchange(caller, listener, max(cut, sum(lengths) // 500)) == (frames, frames)


@pytest.mark.parametrize("length", [LONGEST + 1, 2**32 - 1])
def test_a_frame_that_is_too_long_is_refused_by_its_length(north, length):
    caller, listener = connected(north)
    caller.send(bytes(LONGEST))
    assert len(exchange(caller, listener)[1][0]) == LONGEST
    caller._tls.write(length.to_bytes(4, "little"))
    with pytest.raises(BadConnection, match=f"a frame of {length} bytes, longer than the {LONGEST} allowed"):
        listener.receive(caller.outgoing())


def test_of_a_frame_that_is_not_whole_only_what_came_is_kept(north):
    caller, listener = connected(north)
    caller._tls.write(LONGEST.to_bytes(4, "little") + b"begun")
    assert listener.receive(caller.outgoing()) == []
    assert len(listener._begun) == 9


def test_a_site_that_shows_another_certificate_of_its_name_is_refused_and_told_why(north, other):
    caller, listener = ends(other, calling=pinned_tls.client_context(north.certificate.pem))
    with pytest.raises(BadConnection, match="the certificate that it shows is not the pinned one"):
        exchange(caller, listener)
    assert not caller.ready
    with pytest.raises(BadConnection, match="it does not trust the certificate of this site"):
        listener.receive(caller.outgoing())


def signed_by(site, folder):
    """A site whose certificate, for the same name, carries the signature of another's key."""
    made = Site(folder, "north")
    issuer = x509.load_pem_x509_certificate(site.certificate.pem)
    own = x509.load_pem_x509_certificate(made.certificate.pem)
    builder = x509.CertificateBuilder().subject_name(own.subject).issuer_name(issuer.subject)
    builder = builder.public_key(own.public_key()).serial_number(7)
    builder = builder.not_valid_before(own.not_valid_before_utc).not_valid_after(own.not_valid_after_utc)
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    key = serialization.load_pem_private_key(site.files[1].read_bytes(), None)
    certificate = builder.add_extension(names, critical=False).sign(key, hashes.SHA384())
    made.files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return made


def test_a_certificate_that_the_pinned_one_has_signed_is_refused(north, tmp_path):
    """A site's key makes no other certificates: the pinned one itself counts."""
    signed = signed_by(north, tmp_path)
    caller, listener = ends(signed, calling=pinned_tls.client_context(north.certificate.pem))
    with pytest.raises(BadConnection, match="is not the pinned one"):
        exchange(caller, listener)


def test_a_site_is_refused_under_another_name(north):
    caller, listener = ends(north, name="south.pgfl")
    with pytest.raises(BadConnection, match="is not the pinned one"):
        exchange(caller, listener)
    assert not caller.ready


@pytest.mark.parametrize("linked", [True, False])
def test_a_caller_that_shows_a_certificate_must_show_that_of_a_neighbour(north, other, linked):
    caller, listener = ends(
        north,
        pinned_tls.client_context(north.certificate.pem, *other.files),
        pinned_tls.server_context(*north.files, north.certificate.pem if linked else b""),
    )
    with pytest.raises(BadConnection, match="is not linked"):
        exchange(caller, listener)
    assert not listener.ready


def test_a_caller_that_shows_nothing_is_nobody(north):
    caller, listener = ends(north, listening=pinned_tls.server_context(*north.files, north.certificate.pem))
    exchange(caller, listener)
    assert listener.ready
    assert listener.certificate is None


def test_a_site_is_known_by_its_fingerprint_alone(north, other):
    listener = TlsFrames(pinned_tls.server_context(*north.files), LONGEST)
    pins = {other.certificate.fingerprint, north.certificate.fingerprint}
    caller = TlsFrames(pinned_tls.fingerprint_context(), LONGEST, pins=pins)
    exchange(caller, listener)
    assert caller.ready
    assert ssl.DER_cert_to_PEM_cert(caller.certificate).encode() == north.certificate.pem


@pytest.mark.parametrize("pins", [(), ("00" * 32,), ("",)])
def test_a_site_with_another_fingerprint_is_refused_before_anything_is_sent(north, pins):
    listener = TlsFrames(pinned_tls.server_context(*north.files), LONGEST)
    caller = TlsFrames(pinned_tls.fingerprint_context(), LONGEST, pins=pins)
    with pytest.raises(BadConnection, match="is not the pinned one"):
        exchange(caller, listener)
    assert not caller.ready


def test_a_caller_that_shows_the_certificate_of_a_neighbour_is_known_by_it(north, other):
    caller, listener = ends(
        north,
        pinned_tls.client_context(north.certificate.pem, *other.files),
        pinned_tls.server_context(*north.files, other.certificate.pem),
    )
    exchange(caller, listener)
    assert ssl.DER_cert_to_PEM_cert(listener.certificate).encode() == other.certificate.pem
    assert ssl.DER_cert_to_PEM_cert(caller.certificate).encode() == north.certificate.pem


def test_nothing_is_sent_after_tls_has_ended(north):
    caller, listener = connected(north)
    with pytest.raises(BadConnection, match="TLS failed"):
        listener.receive(b"\x17\x03\x03\x00\x20" + bytes(32))
    with pytest.raises(BadConnection, match="TLS failed"):
        listener.send(b"more")
    with pytest.raises(BadConnection, match="TLS failed"):
        caller.receive(listener.outgoing())


def test_an_older_tls_is_refused(north):
    older = ssl.create_default_context(cadata=north.certificate.pem.decode())
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(BadConnection, match="TLS failed"):
        exchange(*ends(north, calling=older))


@pytest.mark.parametrize("offered", [None, ["h2"], ["http/1.1"]])
def test_who_does_not_speak_frames_is_refused_after_its_handshake(north, offered):
    """An older pgfl, which spoke gRPC, learns nothing; the log says what to do."""
    stranger = ssl.create_default_context(cadata=north.certificate.pem.decode())
    if offered is not None:
        stranger.set_alpn_protocols(offered)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = stranger.wrap_bio(incoming, outgoing, server_hostname="north.pgfl")
    listener = TlsFrames(pinned_tls.server_context(*north.files), LONGEST)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    assert listener.receive(outgoing.read()) == []
    incoming.write(listener.outgoing())
    tls.do_handshake()
    with pytest.raises(BadConnection, match="does not speak pgfl's frames; if it is an older pgfl, upgrade it"):
        listener.receive(outgoing.read())
    assert not listener.ready


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\nHost: north\r\n\r\n", b"\x00" * 100, b"PRI * HTTP/2.0\r\n\r\n"])
def test_what_is_no_tls_is_refused(north, said):
    _, listener = ends(north)
    with pytest.raises(BadConnection, match="TLS"):
        listener.receive(said)


def test_no_session_is_ever_resumed(north):
    caller, listener = connected(north)
    listener.send(b"so that a ticket would have come")
    exchange(caller, listener)
    assert not caller._tls.session.has_ticket
