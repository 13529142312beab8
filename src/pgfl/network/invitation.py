"""The invitation file: what an operator hands to a client, or to the operator of a site that becomes a neighbour.

It holds the site's address, its certificate, the training, and a code that works once. The site's key has signed all of
it, so a file that was changed on the way is refused; one that a stranger made has another fingerprint, which whoever
gets it compares with the operator's over another channel.
"""

from __future__ import annotations

import datetime
import json
import time
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from pgfl.errors import NetworkError
from pgfl.network.agreement import Training
from pgfl.network.protocol import identity
from pgfl.network.protocol.identity import SiteCertificate, signed_by_site

_FORM: Final = 1
_MOST_BYTES: Final = 1 << 20
_CONTEXT: Final = b"pgfl invitation file v1\0"
DAYS: Final = 7.0
"""How long an invitation is good unless its operator says otherwise."""


def shown_time(seconds: float) -> str:
    """A moment (seconds since 1970), for people."""
    return f"{datetime.datetime.fromtimestamp(seconds, datetime.UTC):%Y-%m-%d %H:%M} UTC"


def _printable(text: str) -> str:
    """Text that an owner is shown as it is: no line break and nothing that moves a terminal's cursor."""
    if not text.isprintable():
        raise ValueError("not printable")
    return text


class Invitation(BaseModel):
    """One invitation, as it is written; nothing of it is believed before `read` has checked the signature."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    pgfl_invitation: Literal[1] = _FORM
    kind: Literal["client", "site"]
    name: Annotated[str, Field(pattern=f"^{identity.NAME.pattern}$")]  # of who is invited
    cluster: Annotated[str, Field(max_length=63), AfterValidator(_printable)] = ""  # of a client
    site: Annotated[str, Field(pattern=f"^{identity.NAME.pattern}$")]
    address: Annotated[str, Field(max_length=256, pattern=f"^{identity.ADDRESS.pattern}$")]  # host:port
    certificate: Annotated[str, Field(max_length=16_384)]  # PEM
    training: Annotated[str, Field(max_length=1 << 19)]  # as `Training.text`
    code: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    expires: Annotated[float, Field(ge=0.0, lt=1e11, allow_inf_nan=False)]
    signature: Annotated[str, Field(max_length=512, pattern=r"^(?:[0-9a-f]{2})*$")] = ""

    @property
    def shown(self) -> SiteCertificate:
        """The certificate of the site that invites."""
        return SiteCertificate.parse(self.certificate.encode())

    @property
    def agreed(self) -> Training:
        """The training that the site proposes."""
        return Training.parse(self.training)

    @property
    def until(self) -> str:
        """When it expires, for people."""
        return shown_time(self.expires)

    def signed(self, key: Path) -> Self:
        """The same, signed with the site's key."""
        loaded = serialization.load_pem_private_key(key.read_bytes(), password=None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)  # as `create_site` makes it
        signature = loaded.sign(self._message(), ec.ECDSA(hashes.SHA384())).hex()
        return self.model_copy(update={"signature": signature})

    def text(self) -> str:
        """As it is written to a file."""
        return json.dumps(self.model_dump(), indent=1) + "\n"

    @classmethod
    def read(cls, path: Path, kind: Literal["client", "site"], *, expired: bool = False) -> Self:
        """Read a file that an operator handed over, and refuse one that cannot be used; an `expired` one may be."""
        found = cls._parsed(path)
        try:
            shown, _ = found.shown, found.agreed
        except (ValueError, NetworkError) as error:
            raise NetworkError(f"The invitation {path} cannot be read by this pgfl; ask for a new one.") from error
        signature = bytes.fromhex(found.signature)
        if shown.name != found.site or not signed_by_site(shown, signature, found._message()):
            raise NetworkError(
                f"The invitation {path} was changed after site {found.site} had signed it; ask its operator for a new "
                "one, over another channel."
            )
        if found.kind != kind:
            wanted = "pgfl client join" if found.kind == "client" else "pgfl site init --neighbour"
            raise NetworkError(f"{path} invites the {found.kind} {found.name}; use it with `{wanted}`.")
        if not expired and found.expires <= time.time():
            raise NetworkError(f"The invitation {path} expired at {found.until}; ask {found.site}'s operator anew.")
        return found

    @classmethod
    def _parsed(cls, path: Path) -> Self:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise NetworkError(f"The invitation {path} cannot be read: {error.strerror}.") from error
        try:
            if len(content) > _MOST_BYTES:
                raise ValueError("too long")
            return cls.model_validate_json(content)
        except (ValidationError, ValueError) as error:
            raise NetworkError(
                f"{path} is not an invitation; ask the site's operator for the file that `pgfl site invite` wrote."
            ) from error

    def _message(self) -> bytes:
        stated: dict[str, Any] = self.model_dump(exclude={"signature"})
        return _CONTEXT + json.dumps(stated, sort_keys=True).encode()


def own_address(home: Path, port: int) -> str:
    """host:port where others reach the site, by the first name that its certificate was made for."""
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate((home / identity.SITE_CERTIFICATE).read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    hosts = [str(name.value) for name in names if not str(name.value).endswith(".pgfl")]
    if not hosts or hosts[0] == "localhost":
        raise NetworkError("Nobody knows where to reach this site; give --address host:port.")
    return f"[{hosts[0]}]:{port}" if ":" in hosts[0] else f"{hosts[0]}:{port}"
