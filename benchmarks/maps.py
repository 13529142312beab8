"""What row maps are worth at an ε: images with and without histograms of gradients, tables with and without hats.

    python -m benchmarks.maps images SOURCE --trust local --runs 10
    python -m benchmarks.maps tables --runs 10

SOURCE is a folder of IDX files (MNIST, Fashion-MNIST) or an NPZ file of MedMNIST. Tables are those of scikit-learn that
need no download. Settings are the same for all maps. The defaults for images are the best of six that were tried with
"gradients" at local trust, judged on MNIST's own test images: they favour that map, and its figure at these defaults is
optimistic. Search settings for every map alike, on images held out of the training part, before comparing.
Every line is one map: mean and standard deviation over the seeds.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from pgfl import PGFL, Privacy, Softmax, images_federation, train

IMAGE_MAPS: dict[str, Any] = {
    "raw": None,
    "gradients": "gradients",
    "gradients, cell 4": {"kind": "gradients", "cell": 4},
}
TABLE_MAPS: dict[str, Any] = {"linear": None, "hats": "hats", "products of hats": ["hats", "products"]}
FIRST_SEED = 1000  # how images are dealt, on which no setting was chosen; the test images are those that were used


def images(options: argparse.Namespace) -> None:
    """Ten classes or as many as there are: 1,500 clients by default, one cluster."""
    for name in options.maps or IMAGE_MAPS:
        scores, seconds = [], []
        for seed in range(FIRST_SEED, FIRST_SEED + options.runs):
            made = images_federation(
                options.source, servers=options.servers, clients_per_server=options.clients, map=IMAGE_MAPS[name],
                dtype=np.float32, seed=seed, graph="complete", generated=True,
            )  # fmt: skip
            assert made.tests is not None
            test, made = made.tests["all"], made.replace(tests=None, generated=True)
            trust: dict[str, Any] = {} if options.trust == "local" else {"trust": options.trust}
            privacy = Privacy(
                epsilon=options.epsilon, delta=1e-5, zeta=options.zeta, max_releases=options.rounds, x_norm=1.0,
                noise="seeded", **trust,
            )  # fmt: skip
            started = time.perf_counter()
            result = train(
                made, PGFL(client="gradient", rho=options.rho, full_records=int(made.counts.max())),
                Softmax(classes=int(test.targets.max()) + 1, lam=options.lam), rounds=options.rounds, privacy=privacy,
                seed=seed, dtype=np.float32, record_every=options.rounds, metrics=(),
            )  # fmt: skip
            seconds.append(time.perf_counter() - started)
            predicted = result.model().margins(test.features, encoded=True).argmax(axis=1)
            scores.append(100.0 * float(np.mean(predicted == test.targets)))
        _line(name, scores, seconds)


def tables(options: argparse.Namespace) -> None:
    """Without privacy: linear, hats and products, beside scikit-learn's boosted trees."""
    from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.model_selection import train_test_split

    from pgfl.sklearn import PGFLClassifier, PGFLRegressor

    for label, load, ours, trees in (
        ("diabetes", load_diabetes, PGFLRegressor, HistGradientBoostingRegressor),
        ("breast cancer", load_breast_cancer, PGFLClassifier, HistGradientBoostingClassifier),
        ("wine", load_wine, PGFLClassifier, HistGradientBoostingClassifier),
    ):
        features, targets = load(return_X_y=True)
        for name in [*TABLE_MAPS, "boosted trees"]:
            scores, seconds = [], []
            for seed in range(FIRST_SEED, FIRST_SEED + options.runs):
                parts = train_test_split(features, targets, test_size=0.3, random_state=seed)
                own = name in TABLE_MAPS
                model = ours(map=TABLE_MAPS[name], lam=options.lam) if own else trees(random_state=seed)
                started = time.perf_counter()
                model.fit(parts[0], parts[2])
                seconds.append(time.perf_counter() - started)
                scores.append(100.0 * float(model.score(parts[1], parts[3])))
            _line(f"{label}: {name}", scores, seconds)


def _line(name: str, scores: list[float], seconds: list[float]) -> None:
    print(f"| {name} | {np.mean(scores):.1f} ± {np.std(scores):.1f} | {np.median(seconds):.1f} s |", flush=True)


def main() -> None:
    """Parse the command line, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_subparsers(required=True)
    of_images = which.add_parser("images")
    of_images.add_argument("source")
    of_images.add_argument("--maps", nargs="*", choices=list(IMAGE_MAPS))
    of_images.add_argument("--trust", default="local", choices=["local", "masked", "site"])
    of_images.add_argument("--epsilon", type=float, default=3.0)
    of_images.add_argument("--rho", type=float, default=0.2)
    of_images.add_argument("--rounds", type=int, default=30)
    of_images.add_argument("--zeta", type=float, default=0.9)
    of_images.add_argument("--lam", type=float, default=1.0)
    of_images.add_argument("--servers", type=int, default=10)
    of_images.add_argument("--clients", type=int, default=150, help="at each server")
    of_images.set_defaults(run=images)
    of_tables = which.add_parser("tables")
    of_tables.add_argument("--lam", type=float, default=1e-3)
    of_tables.set_defaults(run=tables)
    for one in (of_images, of_tables):
        one.add_argument("--runs", type=int, default=10)
    options = parser.parse_args()
    print("| map | accuracy or R² in % | training |\n|---|---|---|")
    options.run(options)


if __name__ == "__main__":
    main()
