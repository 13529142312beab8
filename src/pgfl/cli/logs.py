"""The log of long-running commands: one line per event, on standard error."""

from __future__ import annotations

import logging


def show_log() -> None:
    """The log of pgfl from INFO on; of everything else, warnings only, whatever level it gave itself."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True)
    logging.root.handlers[0].addFilter(
        lambda record: record.name.startswith("pgfl") or record.levelno >= logging.WARNING
    )
