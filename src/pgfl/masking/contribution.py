"""What a client masks: its update, clipped to a public bound, on the lattice, with its share of the noise."""

from __future__ import annotations

import numpy as np

from pgfl.array_types import Floats
from pgfl.core import equations as eq
from pgfl.errors import PrivacyError
from pgfl.masking.masked_terms import RoundTerms
from pgfl.privacy import lattice
from pgfl.privacy.lattice import Points


def noised_update(update: Floats, terms: RoundTerms) -> Points:
    """The update as lattice points, with discrete Gaussian noise of variance σ²/h.

    Clipping to a ball takes no two updates further apart, and the noise is drawn anew at every call.
    """
    if not np.isfinite(update).all():
        raise PrivacyError("An update holds NaN or infinity; nothing was released.")
    clipped = eq.clip_update(update, np.zeros_like(update), terms.bound)
    return lattice.with_noise(lattice.to_lattice(np.asarray(clipped)), terms.share_sigma)
