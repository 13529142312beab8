"""Lets the command line's tests use the samples of the folder above."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
