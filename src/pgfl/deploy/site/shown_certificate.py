"""The certificate that a site shows, with its key; its operator can switch to the next one while the site runs."""

from __future__ import annotations

import logging
from pathlib import Path

from pgfl.deploy import identity
from pgfl.deploy.identity import SiteCertificate
from pgfl.deploy.rotation import matching
from pgfl.deploy.sparing_log import SparingLog
from pgfl.errors import NetworkError

log = logging.getLogger(__name__)


class ShownCertificate:
    """The certificate in a site's folder, as it was read last."""

    def __init__(self, home: Path, name: str) -> None:
        """Refuse a folder whose certificate has another name."""
        self.certificate_file, self.key_file = home / identity.SITE_CERTIFICATE, home / identity.SITE_KEY
        self.certificate = SiteCertificate.read(self.certificate_file)
        if self.certificate.name != name:
            raise NetworkError(
                f"site.toml calls this site {name}, its certificate {self.certificate.name}; use one name."
            )
        self.key = _read_key(self.key_file)
        self._sparing = SparingLog(log)

    @property
    def fingerprint(self) -> str:
        """The fingerprint that clients and neighbours pin."""
        return self.certificate.fingerprint

    @property
    def pem(self) -> bytes:
        """The certificate as it is shown."""
        return self.certificate.pem

    def switched(self) -> bool:
        """Look into the folder; returns whether the operator has switched to another certificate, which counts now."""
        try:
            shown, key = SiteCertificate.read(self.certificate_file), _read_key(self.key_file)
        except NetworkError as error:
            self._sparing.warning("certificate", f"the certificate cannot be read: {error}")
            return False
        if shown == self.certificate or shown.name != self.certificate.name or not matching(shown, key):
            return False
        log.info("this site shows the certificate with fingerprint %s… from now on", shown.fingerprint[:16])
        self.certificate, self.key = shown, key
        return True


def _read_key(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise NetworkError(f"The key {path} cannot be read: {error.strerror}; `pgfl site init` makes one.") from error
