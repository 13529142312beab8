"""The engine of experiments in quick tests."""

import pytest

from pgfl.lab.paper import experiments, theorem1, theorem2


@pytest.fixture(autouse=True)
def interpreted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run on NumPy, except in proofs: to compile kernels takes longer than all these small trainings together."""
    if request.node.get_closest_marker("proof") is None:
        for module in (experiments, theorem1, theorem2):
            monkeypatch.setattr(module, "ENGINE", "numpy")
