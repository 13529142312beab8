"""Whether a lock keeps a second thread out of a section that a first one is in."""

import threading
from contextlib import AbstractContextManager

PATIENCE = 5000  # looks at a second thread that neither waits for the lock nor ends


class Contest(AbstractContextManager):
    """Takes the place of a lock. Within its section, `begin` starts a second thread and lets it run until it waits.

    Without the lock it does not wait, and does all of its work in the middle of the first one's.
    """

    def __init__(self, lock, work):
        self._lock, self._work, self._waiting = lock, work, threading.Event()
        self._thread, self._errors = None, []

    def __enter__(self):
        if not self._lock.acquire(blocking=False):
            if threading.current_thread() is self._thread:
                self._waiting.set()
            self._lock.acquire()
        return self

    def __exit__(self, *error):
        return self._lock.__exit__(*error)

    def begin(self):
        """Called in the section, as often as it likes: the second thread starts once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run)
            self._thread.start()
            for _ in range(PATIENCE):
                if self._waiting.is_set() or not self._thread.is_alive():
                    break
                self._thread.join(0.001)

    def finish(self):
        """Wait for the second thread, and raise what went wrong in it."""
        assert self._thread is not None, "the section was never reached"
        self._thread.join()
        if self._errors:
            raise self._errors[0]

    def _run(self):
        try:
            self._work()
        except Exception as error:
            self._errors.append(error)
