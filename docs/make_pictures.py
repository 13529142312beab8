"""Draws the pictures in docs/pictures that the README and the site show: `python docs/make_pictures.py`.

It needs Playwright with a Chromium for the picture of a run's page.
"""

import sys
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

from pgfl import PGFL, FedAvg, Ridge, experiment, synthetic_regression, train
from pgfl.config import load_config

PICTURES = Path(__file__).parent / "pictures"
sys.path.insert(0, str(Path(__file__).parents[1]))


def curves_and_network() -> None:
    """The paper's network beside three ways to train it."""
    from pgfl.results.report.curves import draw_compared

    names = ["each cluster alone", "clusters learn from each other", "one model for all (FedAvg)"]
    algorithms = (PGFL(rho=5.0), PGFL(rho=5.0, tau=0.2), FedAvg())
    results = [
        train(lambda run: synthetic_regression(seed=run), one, Ridge(), rounds=150, runs=20) for one in algorithms
    ]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained", width_ratios=[1, 1.25])
    synthetic_regression(seed=1).plot(ax=left)
    draw_compared(results, names, "nmsd", right)
    right.set_title("Error of the clients' models (20 runs)")
    right.spines[["top", "right"]].set_visible(False)
    right.set_ylabel("NMSD in dB")
    figure.savefig(PICTURES / "curves-and-network.png", dpi=110)


def private_run() -> None:
    """What `make run` leaves: its curves and its page."""
    from tests.browser import browser

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        experiment.run(load_config("private-huber", [], None, None), out=folder).save(folder)
        (PICTURES / "private-run.png").write_bytes((folder / "curves.png").read_bytes())
        with browser() as chromium:
            page = chromium.new_page(viewport={"width": 1180, "height": 1190})
            page.goto((folder / "report.html").as_uri())
            chart = page.locator(".frame svg").first.bounding_box()
            page.mouse.move(chart["x"] + 0.6 * chart["width"], chart["y"] + 0.5 * chart["height"])
            page.screenshot(path=PICTURES / "report-page.png")


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    curves_and_network()
    private_run()
