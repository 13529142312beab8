"""A client's end of Flower in a process of its own, without the rest of Flower, as a real client is."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from pgfl.deploy.flower.flower_client import FlowerInvitations
from pgfl.deploy.invitations import Invitation


@dataclass
class RemoteInvitations:
    """`Invitations` whose `FlowerInvitations` are in a child; they talk in lines, and the child waits for answers."""

    superlink: str
    certificate: Path
    key: Path

    def start(self, invited):
        arguments = [str(part) for part in (self.superlink, self.certificate, self.key)]
        self.child = subprocess.Popen(
            [sys.executable, "-m", "tests.deploy.flower_guest", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._pass_on, args=(invited,), daemon=True).start()

    def _pass_on(self, invited):
        for line in self.child.stdout:
            summary = invited(Invitation(*json.loads(line)))
            self.child.stdin.write(f"{summary}\n")
            self.child.stdin.flush()

    def stop(self):
        self.child.terminate()
        self.child.wait(60)


def main(superlink, certificate, key):
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    invitations = FlowerInvitations(superlink, Path(certificate), Path(key))

    def invited(invitation):
        print(json.dumps([invitation.address, invitation.token]), flush=True)
        return sys.stdin.readline().strip()

    invitations.start(invited)
    over.wait()
    invitations.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
