"""Flower 1.41 in real processes: membership works, control is locked, and what a SuperLink ships never runs."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import queue
from pathlib import Path

import httpx
import pytest

from pgfl.deploy import identity, processes
from pgfl.deploy.flower import flower
from pgfl.deploy.flower.flower_client import FlowerInvitations
from pgfl.deploy.flower.flower_site import SuperLink
from pgfl.deploy.flower.join_message import JOIN, read_invitation
from pgfl.deploy.invitations import Invitation
from tests.deploy.flower_operator import WithSecret, control, identify, task_of

HOSTILE = {
    "pyproject.toml": b"""[project]
name = "evil"
version = "1.0.0"
[tool.flwr.app]
publisher = "mallory"
[tool.flwr.app.components]
serverapp = "evil:server"
clientapp = "evil:client"
""",
    "evil.py": b"import pathlib; pathlib.Path(%r).write_text('I ran'); client = server = None\n",
}


PROTOBUF = {"content-type": "application/protobuf"}
pytestmark = pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # Flower's own


def wait(condition, seconds=400.0):
    import time

    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.1)
    return found


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A SuperLink with its control locked, and one admitted client that waits for invitations."""
    home, client = tmp_path / "site", tmp_path / "ann"
    identity.create_site(home, "north", [])
    key = identity.create_client(client, "ann")
    certificate, secret_key = home / identity.SITE_CERTIFICATE, home / identity.SITE_KEY
    link = SuperLink(home, "127.0.0.1", processes.free_port(), certificate, secret_key)
    invitations: queue.Queue[Invitation] = queue.Queue()

    def invited(invitation):
        invitations.put(invitation)
        return "done"

    waiting = FlowerInvitations(f"127.0.0.1:{link.port}", certificate, client / identity.CLIENT_KEY)
    (tmp_path / "http.py").write_text(f"open({str(tmp_path / 'http-was-here')!r}, 'w')")
    monkeypatch.chdir(tmp_path)  # which Python would import http from
    importlib.import_module("flwr.superlink.grid")  # before another thread imports it too
    link.start()
    waiting.start(invited)
    yield link, key, invitations, tmp_path
    waiting.stop()
    link.stop()


def hostile_bundle(marker):
    from flwr.cli.build import build_fab_from_files
    from flwr.proto.fab_pb2 import Fab

    files = {**HOSTILE, "evil.py": HOSTILE["evil.py"] % str(marker)}
    content, _ = build_fab_from_files(files)
    return Fab(hash_str=hashlib.sha256(content).hexdigest(), content=content)


def memory_stays_small(link):
    """A stranger's long body is refused, whether it states its length or not, and nobody keeps it in memory."""
    chunk = bytes(1 << 20)
    peak = peak_megabytes(link._child.pid)
    address = f"https://127.0.0.1:{link.port}/v1/fleet/register-node"
    for content in (chunk * 64, (chunk for _ in range(64))):
        with contextlib.suppress(httpx.TransportError):  # the connection may break before all of it is sent
            said = httpx.post(address, content=content, headers=PROTOBUF, verify=False, timeout=120.0)
            assert said.status_code == 413
    assert peak_megabytes(link._child.pid) < peak + 24


def peak_megabytes(process):
    (line,) = [line for line in Path(f"/proc/{process}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) // 1024


def test_a_hostile_bundle_does_not_run_and_control_is_locked(site, caplog):
    """A malicious operator starts a run of its own code and sends it to the node: messages arrive, code never runs."""
    from flwr.app import Message, RecordDict
    from flwr.proto.control_pb2 import RegisterNodeRequest, StartRunRequest
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    link, key, invitations, folder = site
    marker = folder / "evil-was-here"
    stranger = control(link)
    operator = control(link, WithSecret(link.lock.read_text().strip()))
    request = RegisterNodeRequest(public_key=public_key_to_bytes(key.public), name="ann")

    def registered():
        assert not (folder / "http-was-here").exists(), "a file in the working folder was imported"
        try:
            return operator.RegisterNode(request).node_id
        except httpx.TransportError:
            return None

    wait(registered)
    with pytest.raises(httpx.HTTPStatusError, match="403"):
        stranger.RegisterNode(request)
    with pytest.raises(httpx.HTTPStatusError, match="403"):
        stranger.StartRun(StartRunRequest(fab=hostile_bundle(marker)))

    memory_stays_small(link)
    run = operator.StartRun(StartRunRequest(fab=hostile_bundle(marker))).run_id
    grid, task = task_of(link, run, wait)
    (node,) = wait(lambda: list(grid.get_nodes()))

    def send(kind, text):
        identify(task)
        grid.push_messages([Message(RecordDict(), node.node_id, kind, ttl=600.0, group_id=text)])

    good = json.dumps(["127.0.0.1:9", "t"])
    send("train", good)
    send(JOIN, json.dumps([7, "t"]))
    send(JOIN, good)
    assert invitations.get(timeout=400.0) == Invitation("127.0.0.1:9", "t")
    assert invitations.empty()
    assert caplog.text.count("was refused: not an invitation") == 2
    grid.close()
    assert not marker.exists(), "the bundle ran"
    unpacked = [path for path in folder.rglob("*") if path.name == "evil.py"]
    assert not unpacked, "the bundle was unpacked"
    kept = [*(folder / "site").glob("flower.db*"), *folder.rglob("*.secret"), *folder.rglob("*.log")]
    assert len(kept) >= 4
    assert {oct(path.stat().st_mode & 0o077) for path in kept} == {"0o0"}, "others can read it"


@pytest.mark.parametrize("text", ["", "7", "[", '["a"]', '["a", "t", "x"]', '["", "t"]', '["a", ""]', "[" * 5000])
def test_what_is_not_an_invitation_is_none(text):
    assert read_invitation(JOIN, text) is None
    assert read_invitation("train", '["a", "t"]') is None
    assert read_invitation(JOIN, '["a", "t"]') == Invitation("a", "t")


def test_telemetry_and_update_checks_are_off_unless_the_user_wants_them(tmp_path, monkeypatch):
    for name in flower.QUIET:
        monkeypatch.delenv(name, raising=False)
    assert flower.environment(tmp_path)["FLWR_TELEMETRY_ENABLED"] == "0"
    assert flower.environment(tmp_path)["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "1")
    assert flower.environment(tmp_path)["FLWR_TELEMETRY_ENABLED"] == "1"
