"""What a client needs of Flower's node: to be online at its site's SuperLink, and to receive messages there.

A SuperNode would take a process of 100 MB beside the client, and the package `flwr` as much again inside it. The Fleet
API is a few small requests over HTTPS, signed with the node's key, so a client makes them itself. Of Flower it imports
the generated protobuf messages only. A bundle of code that a SuperLink ships is never even asked for.
"""

from __future__ import annotations

import datetime
import http.client
import importlib.util
import socket
import ssl
import sys
import threading
from base64 import b64encode
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pgfl.deploy.identity import SiteCertificate

HEARTBEAT_SECONDS = 10.0  # the shortest that Flower takes: after a kill it forgets a node in twice this time
_REQUEST_SECONDS = 30.0
_MOST_REPLY_BYTES = 1 << 20
_REFUSALS = {
    401: "the site does not accept the signature; is this machine's clock right?",
    412: "the site has not admitted this client, or still holds its session before",
}
_importing = threading.Lock()


class NodeRefused(Exception):
    """The SuperLink refuses this node; the text says why."""


class _Metadata(Protocol):
    message_type: str
    group_id: str


class ReceivedMessage(Protocol):
    """As much of Flower's protobuf message as a client looks at."""

    metadata: _Metadata


class FleetNode:
    """One session of a node: `online` inside, signed off after it."""

    def __init__(self, address: str, certificate: Path, key: ec.EllipticCurvePrivateKey) -> None:
        self.host, _, port = address.rpartition(":")
        self.port = int(port)
        self.site = SiteCertificate.read(certificate)
        self._key = key
        self._public = key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self._fleet, self._heartbeat = messages("fleet"), messages("heartbeat")

    def __enter__(self) -> FleetNode:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.load_verify_locations(cadata=self.site.pem.decode())
        self._http = http.client.HTTPConnection(self.host, self.port, timeout=_REQUEST_SECONDS)
        plain = socket.create_connection((self.host.strip("[]"), self.port), timeout=_REQUEST_SECONDS)
        try:
            self._http.sock = tls.wrap_socket(plain, server_hostname=self.site.tls_name)
        except BaseException:
            plain.close()
            raise
        try:
            request = self._fleet.ActivateNodeRequest(public_key=self._public, heartbeat_interval=HEARTBEAT_SECONDS)
            self._node = self._call("activate-node", request, self._fleet.ActivateNodeResponse()).node_id
        except BaseException:
            self._http.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            request = self._fleet.DeactivateNodeRequest(node_id=self._node)
            self._call("deactivate-node", request, self._fleet.DeactivateNodeResponse())
        except (OSError, http.client.HTTPException, NodeRefused):
            pass  # the SuperLink forgets it by itself
        finally:
            self._http.close()

    def beat(self) -> None:
        """Stay online for another while."""
        request = self._heartbeat.SendNodeHeartbeatRequest(heartbeat_interval=HEARTBEAT_SECONDS)
        request.node.node_id = self._node
        if not self._call("send-node-heartbeat", request, self._heartbeat.SendNodeHeartbeatResponse()).success:
            raise NodeRefused("the site has forgotten this session")

    def receive(self) -> ReceivedMessage | None:
        """The next message; None if there is none."""
        request = self._fleet.PullMessagesRequest()
        request.node.node_id = self._node
        found: list[ReceivedMessage] = self._call(
            "pull-messages", request, self._fleet.PullMessagesResponse()
        ).messages_list
        return found[0] if found else None

    def _call(self, name: str, request: Any, reply: Any) -> Any:
        body = request.SerializeToString(deterministic=True)
        self._http.request("POST", f"/v1/fleet/{name}", body, self._headers())
        response = self._http.getresponse()
        said = response.read(_MOST_REPLY_BYTES)
        if response.status != 200:
            raise NodeRefused(_REFUSALS.get(response.status, f"status {response.status} to {name}"))
        reply.ParseFromString(said)
        return reply

    def _headers(self) -> dict[str, str]:
        now = datetime.datetime.now(datetime.UTC).isoformat()
        signature = self._key.sign(now.encode("ascii"), ec.ECDSA(hashes.SHA256()))
        return {
            "Content-Type": "application/protobuf",
            "Accept": "application/protobuf",
            "flwr-package-name": "flwr",
            "flwr-package-version": version("flwr"),
            "flwr-component-name": "SuperNode",
            "flwr-public-key": b64encode(self._public).decode("ascii"),
            "flwr-timestamp": now,
            "flwr-signature": b64encode(signature).decode("ascii"),
        }


@cache
def messages(name: str) -> ModuleType:
    """Flower's protobuf messages of this name, without the package around them, which imports all of Flower."""
    with _importing:
        if "flwr" in sys.modules:
            return import_module(f"flwr.proto.{name}_pb2")
        found = importlib.util.find_spec("flwr")
        if found is None or found.submodule_search_locations is None:
            raise ModuleNotFoundError("No module named 'flwr'", name="flwr")
        bare = ModuleType("flwr")
        bare.__path__ = list(found.submodule_search_locations)
        sys.modules["flwr"] = bare
        try:
            return import_module(f"flwr.proto.{name}_pb2")
        finally:
            for loaded in [loaded for loaded in sys.modules if loaded.split(".")[0] == "flwr"]:
                del sys.modules[loaded]
