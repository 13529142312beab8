"""Ports are given once, also by two processes at the same time."""

from __future__ import annotations

import json
import subprocess
import sys

from pgfl.network import processes

TAKE = """
import json, sys
from pgfl.network import processes
processes._PORTS = (20_100, 20_160)
print(json.dumps([processes.free_port() for _ in range(20)]), flush=True)
sys.stdin.read()
"""


def taker():
    return subprocess.Popen([sys.executable, "-c", TAKE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_two_processes_are_never_given_the_same_port_even_before_they_listen():
    takers = [taker(), taker()]
    given = [json.loads(each.stdout.readline()) for each in takers]
    for each in takers:
        each.communicate()
    assert all(len(set(ports)) == 20 for ports in given)
    assert not set(given[0]) & set(given[1])


def test_ports_are_free_again_when_their_process_has_ended():
    for _ in range(4):  # eighty ports out of sixty
        process = taker()
        assert len(json.loads(process.stdout.readline())) == 20
        process.communicate()


def test_one_process_is_given_a_port_once(monkeypatch):
    monkeypatch.setattr(processes, "_PORTS", (20_200, 20_260))
    given = [processes.free_port() for _ in range(20)]
    assert len(set(given)) == 20
