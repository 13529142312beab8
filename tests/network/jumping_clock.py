"""A wall clock that jumps, in child processes: Python imports the folder's `sitecustomize`, which shifts `time.time`.

OpenSSL asks the kernel and sees no jump, so that what certificates say of themselves is not part of this.
"""

from __future__ import annotations

import os
from contextlib import contextmanager

_VARIABLE = "PGFL_TEST_CLOCK"
_SHIFT = f"""
import os, time
_time, _file = time.time, os.environ[{_VARIABLE!r}]

def _shifted():
    try:
        with open(_file) as file:
            return _time() + float(file.read())
    except (OSError, ValueError):
        return _time()

time.time = _shifted
"""


class JumpingClock:
    """The clock of all processes that are started while it is `installed`."""

    def __init__(self, folder):
        folder.mkdir(parents=True)
        self._folder, self._file = folder, folder / "seconds"
        (folder / "sitecustomize.py").write_text(_SHIFT)

    @contextmanager
    def installed(self):
        """Inside, children have this clock."""
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = str(self._folder) + (os.pathsep + before if before else "")
        os.environ[_VARIABLE] = str(self._file)
        try:
            yield
        finally:
            del os.environ[_VARIABLE]
            if before is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = before

    def jump(self, seconds):
        """Be so much ahead of the true time, or behind it, from now on."""
        part = self._file.with_suffix(".part")
        part.write_text(repr(float(seconds)))
        part.replace(self._file)
