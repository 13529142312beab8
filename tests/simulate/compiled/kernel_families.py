"""Train with every family of compiled kernels, in the order given, and print a digest of what each training made.

`python kernel_families.py NAME ...` prints the digests and the kernels that none of these trainings called; with
`--names`, it prints the names.
"""

import hashlib
import json
import sys
from unittest.mock import patch

import numpy as np
from numba.core.dispatcher import Dispatcher

from pgfl import PGFL, FedAvg, Hinge, Huber, Logistic, Privacy, Ridge, Softmax, synthetic_regression, train
from pgfl.privacy.noise import SeededNoise
from pgfl.simulate.compiled import kind
from pgfl.simulate.compiled.blocks import prepare
from pgfl.simulate.layout import lay_out

SHAPE = {"servers": 3, "clients_per_server": 6, "clusters": 2, "samples": (2, 9), "graph": "ring", "x_norm": 1.0}
ROWS = synthetic_regression(dimension=20, **SHAPE)  # fit into registers
LONG = synthetic_regression(dimension=150, **SHAPE)  # do not
LABELS = {"targets": (LONG.targets > 0).astype(float)}
PIXELS = np.random.default_rng(0).integers(1, 256, LONG.features.shape) * (np.arange(150) % 40 < 5)
BYTES = LONG.replace(features=PIXELS / np.linalg.norm(PIXELS, axis=1, keepdims=True), **LABELS)
ZEROS = LONG.replace(features=np.where(np.arange(150) % 40 < 5, LONG.features, 0.0), **LABELS)
THREE = LONG.replace(targets=(np.abs(9.0 * LONG.targets).astype(int) % 3).astype(float), truth=None)
GRADIENT = PGFL(rho=40.0, client="gradient")
PRIVATE = {"x_norm": 1.0, "phi0": 1e-3}


class OtherNoise(SeededNoise):
    """Noise that no kernel draws, as float-safe noise is; that has other bits every time."""


FAMILIES = {
    "ridge, orthogonal": (ROWS, PGFL(tau=0.3), Ridge(0.01), {}),
    "ridge, coordinates": (ROWS, PGFL(), Ridge(0.01), {"copied": 0}),
    "ridge, long coordinates": (LONG, PGFL(), Ridge(0.01), {"copied": 0}),
    "ridge, scheduled": (ROWS, PGFL(), Ridge(0.01), {"participants": 2}),
    "ridge, float32": (ROWS, PGFL(), Ridge(0.01), {"dtype": "float32"}),
    "ridge, zeros": (ZEROS, PGFL(), Ridge(0.01), {"participants": 2}),
    "ridge, bytes": (BYTES, PGFL(), Ridge(0.01), {"participants": 2}),
    "huber": (LONG, PGFL(rho=0.01), Huber(), {}),
    "huber, scheduled": (ROWS, PGFL(rho=0.01), Huber(), {"participants": 2}),
    "huber, float32": (ROWS, PGFL(rho=0.01), Huber(), {"participants": 2, "dtype": "float32"}),
    "logistic, zeros": (ZEROS, PGFL(), Logistic(), {}),
    "logistic, bytes": (BYTES, PGFL(rho=0.001), Logistic(), {"participants": 2}),
    "hinge, steps": (BYTES, GRADIENT, Hinge(), {}),
    "huber, steps": (LONG, GRADIENT, Huber(), {"participants": 2}),
    "huber, steps in registers": (ROWS, GRADIENT, Huber(), {}),
    "softmax, steps": (THREE, GRADIENT, Softmax(classes=3), {}),
    "fedavg": (ROWS, FedAvg(step_size=0.01), Ridge(), {}),
    "private": (ROWS, PGFL(), Huber(), {"privacy": Privacy(**PRIVATE), "participants": 2}),
    "private, steps": (LONG, GRADIENT, Huber(), {"privacy": Privacy(**PRIVATE)}),
    "private, masked": (ROWS, GRADIENT, Huber(), {"privacy": Privacy(**PRIVATE, trust="masked"), "participants": 4}),
    "private, site": (ROWS, GRADIENT, Huber(), {"privacy": Privacy(**PRIVATE, trust="site")}),
    "private, float32": (ROWS, PGFL(), Huber(), {"privacy": Privacy(**PRIVATE), "participants": 2, "dtype": "float32"}),
    "private, released by NumPy": (ROWS, PGFL(), Huber(), {"privacy": Privacy(**PRIVATE), "noise": OtherNoise}),
    "threads": (ROWS, PGFL(), Huber(), {"threads": 2}),
}


def digest(name: str) -> str:
    if name == "factors":  # small kernels, for a test that is not to take long
        (block,) = prepare(lay_out([LONG]), Huber(), 1.0, np.float64)
        return hashlib.sha256(block.problems.factors.tobytes() + block.problems.slack.tobytes()).hexdigest()
    data, algorithm, objective, options = FAMILIES[name]
    options = dict(options)
    copied, noise = options.pop("copied", kind.COPIED), options.pop("noise", SeededNoise)
    with patch.object(kind, "COPIED", copied), patch("pgfl.privacy.noise.SeededNoise", noise):
        result = train(data, algorithm, objective, rounds=4, engine="numba", **options)
    arrays = [result.models[0].clients, result.models[0].servers, *(result.history[one] for one in result.metrics)]
    return hashlib.sha256(b"".join(np.ascontiguousarray(one).tobytes() for one in arrays)).hexdigest()


def never_called() -> list[str]:
    modules = [module for name, module in sys.modules.items() if name.startswith("pgfl.simulate.numba_")]
    found = {one for module in modules for one in vars(module).values() if isinstance(one, Dispatcher)}
    kernels = [one for one in found if one.targetoptions.get("no_cpython_wrapper") is None]  # parts have none
    return sorted(one.py_func.__qualname__ for one in kernels if not one.overloads)


if __name__ == "__main__":
    if sys.argv[1:] == ["--names"]:
        print(json.dumps(list(FAMILIES)))
    else:
        print(json.dumps([{name: digest(name) for name in sys.argv[1:]}, never_called()]))
