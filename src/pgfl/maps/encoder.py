"""A frozen encoder: a network that was trained elsewhere, as an ONNX file, makes the features of a row.

The file is known by its SHA-256 alone. A model keeps that and not the file, which may be large: whoever predicts,
continues a run or takes part on a network has the file, and its bytes are checked before they are run.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from pgfl.arrays import Floats
from pgfl.errors import ConfigError, require_extra
from pgfl.maps.interface import Group, Groups, OnnxGraph, RowMap, length, whole
from pgfl.suggestions import shown

FOLDER = "PGFL_ENCODERS"
"""The environment variable that names a folder of encoders."""
SUFFIX = ".onnx"
TRIED = 6  # rows on which an encoder must not look at other rows
ALIKE = 1e-3  # of the largest output: how far a row's outputs may differ between batches, which round differently

_FILES: dict[str, str] = {}
"""Where a file with this SHA-256 was named, for models that know only the hash."""


@dataclass(frozen=True)
class Encoder(RowMap):
    """The first output of the ONNX graph whose file has this `sha256`, run by ONNX Runtime one row at a time.

    `file` is where it lies on this machine; without it, files in the current folder and in that of `PGFL_ENCODERS` are
    looked at. `public` declares that the encoder was not trained on these records, which privacy asks for. `features`
    is the number of outputs, and follows from the file. What is not finite becomes 0.
    """

    kind: ClassVar[str] = "onnx"

    sha256: str
    file: str | None = field(default=None, compare=False, repr=False)  # no refusal to a site may show a path
    public: bool = field(default=False, compare=False)
    features: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not (isinstance(self.sha256, str) and re.fullmatch("[0-9a-f]{64}", self.sha256)):
            raise ConfigError(f"`sha256` of onnx has 64 digits of 0-9 and a-f; got {shown(self.sha256)}.")
        if not isinstance(self.file, str | None):
            raise ConfigError(f"`file` of onnx must be a path; got {shown(self.file)}.")
        if not isinstance(self.public, bool):
            raise ConfigError(f"`public` of onnx must be true or false; got {shown(self.public)}.")
        if self.features is not None:
            whole("features", self.features, 1, 10_000_000)
        if self.file is not None:
            _FILES[self.sha256] = self.file

    def located(self, base: Path) -> Self:
        """Return the map with its file named from a folder."""
        return self if self.file is None else replace(self, file=str(base / os.path.expanduser(self.file)))

    def described(self) -> dict[str, Any]:
        """Return the constants without the place of the file, which is no part of the map."""
        return {"sha256": self.sha256, "public": self.public} | (
            {} if self.features is None else {"features": self.features}
        )

    def outputs(self, groups: Groups) -> Groups:
        """Return one group without a bound: rows are clipped to `privacy.x_norm`, which has to be stated."""
        count = self.features or _network(self.sha256, _shape(groups)).features
        return (Group("encoder", tuple(f"encoder-{number}" for number in range(1, count + 1)), None),)

    def apply(self, rows: Floats, groups: Groups) -> Floats:
        """Return the outputs. Every row is run by itself, so that no row can reach another one's features."""
        network = _network(self.sha256, _shape(groups))
        if self.features not in (None, network.features):
            raise ConfigError(
                f"The encoder {self.sha256[:12]}… has {network.features} outputs, not `features` = {self.features}; "
                "correct it."
            )
        mapped = np.empty((len(rows), network.features))
        for number, row in enumerate(rows):
            mapped[number] = network.run(row[None])[0]
        return np.nan_to_num(mapped, copy=False, nan=0.0, posinf=0.0, neginf=0.0)

    def cost(self, groups: Groups) -> float:
        """Return two operations per four bytes of the file: once per weight, and more where weights are shared."""
        return 0.5 * len(_bytes(self.sha256))

    def onnx(self, graph: OnnxGraph, rows: str, groups: Groups) -> str:
        """Add the encoder's own operators."""
        from pgfl.maps.inlining import inlined

        return inlined(_bytes(self.sha256), graph, rows, fitting, _shape(groups))


def _shape(groups: Groups) -> tuple[int, ...]:
    """Return the shape of one row: that of an image, or a number of features."""
    image = groups[0].shape if len(groups) == 1 else None
    return (length(groups),) if image is None else tuple(image)


def _places(sha256: str) -> Iterator[Path]:
    if sha256 in _FILES:
        yield Path(_FILES[sha256])
    for folder in (os.environ.get(FOLDER), "."):
        if folder and Path(folder).is_dir():
            yield from sorted(Path(folder).glob(f"*{SUFFIX}"))


@lru_cache(maxsize=2)
def _bytes(sha256: str) -> bytes:
    """Return the file with this hash; what is run are the bytes that were checked."""
    named = _FILES.get(sha256)
    for path in _places(sha256):
        try:
            content = path.read_bytes()
        except OSError as error:
            if str(path) == named:
                raise ConfigError(f"The encoder {path} cannot be read ({error.strerror}); correct `file`.") from None
            continue
        found = hashlib.sha256(content).hexdigest()
        if found == sha256:
            return content
        if str(path) == named:
            raise ConfigError(
                f"The encoder {path} has the SHA-256 {found}, not {sha256}; it is another file than the one agreed on."
            )
    raise ConfigError(
        f"No file with the SHA-256 {sha256} was found; put the encoder into this folder as NAME{SUFFIX}, or name its "
        f"folder in {FOLDER}."
    )


class _Network:
    """An ONNX graph that takes one row, checked to look at nothing else."""

    def __init__(self, content: bytes, shape: tuple[int, ...]) -> None:
        require_extra("Encoders are run by ONNX Runtime", "encoders", "onnxruntime")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.use_deterministic_compute = True
        options.log_severity_level = 4
        try:
            self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # a damaged or foreign file fails in any way
            raise ConfigError(f"ONNX Runtime cannot load the encoder ({_said(error)}); export it again.") from None
        inputs = self._session.get_inputs()
        if len(inputs) != 1 or inputs[0].type not in ("tensor(float)", "tensor(double)"):
            raise ConfigError("An encoder has one input of floats or doubles, the rows; export it so.")
        self._name, self._output = inputs[0].name, self._session.get_outputs()[0].name
        self._dtype = np.float32 if inputs[0].type == "tensor(float)" else np.float64
        self._shape = fitting(inputs[0].shape, shape)
        self._single = inputs[0].shape[0] == 1
        self.features = 0
        self._check(shape)

    def run(self, rows: Floats) -> Floats:
        """Return the outputs, one row per row."""
        given = rows.astype(self._dtype).reshape(len(rows), *self._shape)
        try:
            found = self._session.run([self._output], {self._name: given})[0]
        except Exception as error:
            raise ConfigError(f"ONNX Runtime cannot run the encoder ({_said(error)}); export it again.") from None
        if not np.ndim(found) or len(found) != len(rows):
            raise ConfigError("An encoder's first output has one row per row of its input; export it so.")
        return np.asarray(found, dtype=np.float64).reshape(len(rows), -1)

    def _check(self, shape: tuple[int, ...]) -> None:
        """Refuse a graph that draws random numbers, or whose answer to a row depends on the rows beside it."""
        rng = np.random.default_rng(0)
        rows = rng.random((TRIED, int(np.prod(shape))))
        alone = np.concatenate([self.run(row[None]) for row in rows])
        self.features = alone.shape[1]
        again = np.concatenate([self.run(row[None]) for row in rows])
        if not np.array_equal(alone, again, equal_nan=True):
            raise ConfigError("The encoder gives a row another answer every time; export it in evaluation mode.")
        if self._single:
            return
        scrambled = rng.random(rows.shape)
        scrambled[0] = rows[0]
        beside = self.run(rows), self.run(scrambled)[:1]
        if not all(_alike(found, alone[: len(found)]) for found in beside):
            raise ConfigError(
                "The encoder gives a row another answer beside other rows (a mean over rows, or BatchNorm in training "
                "mode); export it in evaluation mode."
            )


@lru_cache(maxsize=2)
def _network(sha256: str, shape: tuple[int, ...]) -> _Network:
    return _Network(_bytes(sha256), shape)


def _alike(found: Floats, expected: Floats) -> bool:
    scale = float(np.max(np.abs(expected), initial=1e-6, where=np.isfinite(expected)))
    return bool(np.allclose(found, expected, rtol=ALIKE, atol=ALIKE * scale, equal_nan=True))


def fitting(wanted: list[Any], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape in which the graph takes a row: flat, or an image with or without a channel."""
    flat = (int(np.prod(shape)),)
    batch, own = wanted[0] if wanted else None, tuple(wanted[1:])
    if isinstance(batch, int) and batch != 1:
        raise ConfigError(f"The encoder takes {batch} rows at a time; export it for one row, or any number.")
    for candidate in (shape, (1, *shape), flat):
        if len(candidate) == len(own) and all(
            not isinstance(size, int) or size == given for size, given in zip(own, candidate, strict=True)
        ):
            return candidate
    raise ConfigError(
        f"The encoder takes rows of {_times(own)} numbers, not {_times(shape)}; choose another one, or other columns."
    )


def _times(shape: tuple[Any, ...]) -> str:
    return " × ".join("any" if not isinstance(size, int) else str(size) for size in shape) or "no"


def _said(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")[:200]
