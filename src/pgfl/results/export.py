"""Export: a model as a scikit-learn object or an ONNX graph, for programs that do not have pgfl."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from pgfl.arrays import Floats
from pgfl.errors import ResultError, require_extra
from pgfl.files import write_atomically

if TYPE_CHECKING:
    from pgfl.objectives.interface import Task
    from pgfl.results.model import Model


Target = Literal["sklearn", "onnx"]


@dataclass(frozen=True, eq=False)
class Chosen:
    """The one model that is exported: coefficients (C × d, or 1 × d) for encoded features, and what it predicts.

    Of two labels the second one is predicted where the margin is above `threshold`.
    """

    model: Model
    coefficients: Floats
    task: Task
    threshold: float = 0.0

    @property
    def clips(self) -> bool:
        """Whether clipping to `x_norm` can change a row: not if every encoded row is within it anyway."""
        model = self.model
        if model.x_norm is None:
            return False
        most = None if model.encoding is None else model.encoding.x_norm
        return most is None or most > model.x_norm

    @property
    def unit(self) -> tuple[float, float]:
        """(offset, scale): a regression's prediction is offset + scale · margin."""
        encoding = self.model.encoding
        if encoding is None or self.task != "regression":
            return 0.0, 1.0
        return float(encoding.target.decode(np.zeros(1))[0]), encoding.target.unit


def export(
    model: Model,
    path: str | os.PathLike[str],
    to: Target,
    *,
    client: str | None = None,
    cluster: str | None = None,
    server: str | None = None,
) -> None:
    """Write one model to a file: a scikit-learn object (saved with joblib), or an ONNX graph.

    `client`, `cluster` or `server` with `cluster` names it; without a name it is the only cluster's.
    """
    if to not in get_args(Target):
        raise ResultError(f"A model is exported to {' or '.join(get_args(Target))}, not to {to!r}.")
    target = Path(path)
    if target.exists():
        raise ResultError(f"{target} already exists, and nothing was overwritten; choose another file.")
    if not target.parent.is_dir():
        raise ResultError(f"The folder {target.parent} does not exist; make it, or choose another file.")
    chosen = choose(model, client=client, cluster=cluster, server=server)
    if to == "sklearn":
        require_extra("Exporting to scikit-learn needs it", "sklearn", "sklearn")
        from pgfl.results.export_sklearn import write
    else:
        require_extra("Exporting to ONNX needs it", "onnx", "onnx")
        from pgfl.results.export_onnx import write
    content = write(chosen)
    write_atomically(target, lambda stream: stream.write(content))


def choose(model: Model, *, client: str | None = None, cluster: str | None = None, server: str | None = None) -> Chosen:
    """Return the model that is named."""
    coefficients, task = model.chosen(client=client, cluster=cluster, server=server)
    threshold = model.label_threshold(model.cluster_of(client, cluster))
    return Chosen(model, coefficients.astype(np.float64).reshape(model.classes or 1, -1), task, threshold)
