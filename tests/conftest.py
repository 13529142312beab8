"""What every test leaves as it found it."""

import logging

import pytest


@pytest.fixture(autouse=True)
def no_log_of_a_command_stays():
    """A command that shows its log writes to the standard error of its test, which is closed afterwards."""
    level = logging.root.level
    yield
    for handler in [handler for handler in logging.root.handlers if type(handler) is logging.StreamHandler]:
        logging.root.removeHandler(handler)
    logging.root.setLevel(level)
