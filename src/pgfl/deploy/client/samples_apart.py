"""A client's rows, read in a process that ends: what reads tables takes 40 MB, and a client lives for weeks."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
from multiprocessing.connection import Connection

from pgfl.deploy.client.client_samples import Samples, load_samples
from pgfl.deploy.client.client_settings import ClientSettings
from pgfl.errors import DataError


def load_samples_apart(settings: ClientSettings) -> Samples:
    """`load_samples` in a fork, unless this process has threads, or polars already."""
    if "polars" in sys.modules or threading.active_count() > 1:
        return load_samples(settings)
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    reader = context.Process(target=_send_samples, args=(settings, here, there))
    reader.start()
    there.close()
    with here:
        try:
            found: Samples | Exception | None = here.recv()
        except EOFError:
            found = None
    reader.join()
    if isinstance(found, Exception):
        raise found
    if found is None:
        raise DataError(
            f"Reading {settings.data} was cut off (exit code {reader.exitcode}); is there enough memory? Start again."
        )
    return found


def _send_samples(settings: ClientSettings, here: Connection, there: Connection) -> None:
    """In the fork; it holds no other end of the pipe, so that it ends if the client does."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    here.close()
    try:
        there.send(load_samples(settings))
    except Exception as error:
        there.send(error)
