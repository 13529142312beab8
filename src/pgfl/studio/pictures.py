"""Digits and learned weights as pictures that a page can hold: PNG in a data address."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pgfl.array_types import AnyFloats
from pgfl.config import Config
from pgfl.data.configured import federations

SIDE = 28
SAMPLES = 6


@dataclass(frozen=True)
class Sample:
    """A test image with what the model of its cluster says about it."""

    picture: str
    label: str
    predicted: str
    probability: float

    @property
    def right(self) -> bool:
        """Whether the model is right."""
        return self.label == self.predicted


@dataclass(frozen=True)
class Task:
    """A cluster's task: its learned weights, and some test images."""

    cluster: str
    weights: str
    samples: tuple[Sample, ...]


def tasks(config: Config, models: Mapping[str, AnyFloats]) -> list[Task]:
    """The pictures of every cluster of a training on digits; the first test images of either label, every time."""
    federation = federations(config)(0, None)
    found = []
    for cluster, model in models.items():
        test = (federation.tests or {})[cluster]
        names = cluster.split("|")
        chosen = np.concatenate([np.flatnonzero(test.targets == label)[: SAMPLES // 2] for label in (0, 1)])
        samples = tuple(_sample(test.features[row], int(test.targets[row]), model, names) for row in chosen.tolist())
        found.append(Task(cluster, picture(model[: SIDE * SIDE], diverging=True), samples))
    return found


def _sample(features: AnyFloats, label: int, model: AnyFloats, names: list[str]) -> Sample:
    chance = float(1.0 / (1.0 + np.exp(-np.clip(features @ model, -500, 500))))
    predicted = int(chance > 0.5)
    image = picture(features[: SIDE * SIDE])
    return Sample(image, names[label], names[predicted], chance if predicted else 1.0 - chance)


def picture(values: AnyFloats, *, diverging: bool = False) -> str:
    """A square of pixels as a data address; with weights, blue votes for the first label and red for the second."""
    from matplotlib.image import imsave

    square = np.asarray(values, dtype=float).reshape(SIDE, SIDE)
    most = float(np.abs(square).max()) or 1.0
    look: dict[str, Any] = {"cmap": "RdBu_r", "vmin": -most, "vmax": most} if diverging else {"cmap": "gray_r"}
    file = io.BytesIO()
    imsave(file, square, format="png", **look)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
