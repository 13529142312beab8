"""NumPy's engine, which counts how often it was prepared."""

from pgfl.simulate.array_engines import NumpyKind


class CountingKind(NumpyKind):
    """Compute as NumPy does, and count."""

    prepared = 0

    def prepare(self, setup):
        """Return NumPy's engine and blocks."""
        CountingKind.prepared += 1
        return super().prepare(setup)
