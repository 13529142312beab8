"""The median of absolute errors."""

import numpy as np

from pgfl.metrics import Measure


def median_error(predictions, targets):
    """One number per model."""
    return np.median(np.abs(targets[:, None] - predictions), axis=0)


MEDIAN_ERROR = Measure(
    median_error,
    lambda targets: float(np.median(np.abs(targets - np.median(targets)))),
    lower_is_better=True,
    in_target_unit=True,
    label="median error",
)
