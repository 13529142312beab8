"""Draws the pictures in docs/pictures that the README and the site show: `make pictures`.

Or only those that are named: `make pictures ARGS=error_against_epsilon`.

It needs Playwright with a Chromium for the picture of a run's page.
"""

import sys
import tempfile
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from pgfl import PGFL, FedAvg, Huber, Result, Ridge, experiment, synthetic_regression, train
from pgfl.config import Config, load_config
from pgfl.config.schema import AlgorithmSettings
from pgfl.drawing.plots import CLUSTER_COLOURS, GREY, INK

PICTURES = Path(__file__).parent / "pictures"
sys.path.insert(0, str(Path(__file__).parents[1]))


def curves_and_network() -> None:
    """The paper's network beside three ways to train it."""
    from pgfl.results.report.curves import draw_compared

    names = ["each cluster alone", "clusters learn from each other", "one model for all (FedAvg)"]
    algorithms = (PGFL(rho=5.0), PGFL(rho=5.0, tau=0.2), FedAvg(step_size="auto"))
    results = [
        train(lambda run: synthetic_regression(seed=run), one, Ridge(), rounds=150, runs=20) for one in algorithms
    ]
    names[2] += f", step {results[2].step_size:.2g}"
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained", width_ratios=[1, 1.25])
    synthetic_regression(seed=1).plot(ax=left)
    draw_compared(results, names, "nmsd", right)
    right.set_title("Error of the clients' models (20 runs)")
    right.spines[["top", "right"]].set_visible(False)
    right.set_ylabel("NMSD in dB")
    figure.savefig(PICTURES / "curves-and-network.png", dpi=110)


EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
TRUSTS = {"local": "nobody is trusted", "masked": "masked sums", "site": "trusted servers"}
LEVEL_RUNS = 3


def error_against_epsilon() -> None:
    """What privacy costs at every level of trust, beside each client alone and one model for all."""
    config = load_config("private-huber", [f"runs={LEVEL_RUNS}", "metrics=['nmsd']", "seed=900"], None, None)
    every = {"record_every": config.rounds}
    algorithm = config.algorithm.model_copy(update={"tau": 0.1})

    def final(privacy: dict[str, object], **changes: object) -> float:
        asked = config.privacy.model_copy(update=privacy)
        result = experiment.run(config.model_copy(update={"algorithm": algorithm, "privacy": asked} | every | changes))
        return 10.0 * float(np.log10(result.curve("nmsd")[:, -1].mean()))

    step = 1.0 / (5 * float(algorithm.rho))  # five local steps as long as PGFL's one, so the same noise
    fedavg = AlgorithmSettings(kind="fedavg", step_size=step, full_records=algorithm.full_records)
    figure, axes = plt.subplots(figsize=(8.2, 4.6), layout="constrained")
    for (trust, words), colour, marker in zip(TRUSTS.items(), CLUSTER_COLOURS, "os^", strict=False):
        errors = [final({"epsilon": epsilon, "trust": trust}) for epsilon in EPSILONS]
        axes.plot(EPSILONS, errors, f"{marker}-", color=colour, linewidth=2.2, label=f"PGFL, {words}")
    errors = [final({"epsilon": epsilon}, algorithm=fedavg) for epsilon in EPSILONS]
    axes.plot(
        EPSILONS, errors, "--", color=INK, label=f"one model for all (FedAvg, step {step:.2g}), nobody is trusted"
    )
    alone = [10.0 * np.log10(_alone(config, run)) for run in range(LEVEL_RUNS)]
    axes.axhline(float(np.mean(alone)), color=GREY, linestyle=":", label="each client alone, without noise")
    axes.axhline(final({"enabled": False}), color=GREY, linestyle="-.", linewidth=1.0, label="PGFL without noise")
    axes.set(xscale="log", xlabel="ε (less privacy to the right)", ylabel="error of the models, NMSD in dB")
    axes.set_xticks(EPSILONS, [f"{one:g}" for one in EPSILONS])
    axes.minorticks_off()
    axes.axhline(0.0, color=GREY, linewidth=0.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(PICTURES / "error-against-epsilon.png", dpi=110)


def _alone(config: Config, run: int) -> float:
    """The error of models that every client trains by itself, without noise."""
    made = config.federations()(run, None)
    apart = made.in_clusters(np.arange(made.size), made.client_ids)
    objective = Huber(lam=config.objective.lam, kappa=1.25)
    result = train(apart, PGFL(rho="auto"), objective, rounds=40, record_every=40, metrics=["nmsd"], progress=False)
    return float(result.curve("nmsd")[0, -1])


DIGIT_EPSILONS = tuple(float(f"{one:.2g}") for one in np.geomspace(0.1, 30.0, 25))
FIRST_SHOWN, EACH_SHOWN, LAST_SHOWN = 1600, 400, 4000  # milliseconds
COLOURS = 48  # enough for weights, and a picture of moderate size


def digits_against_epsilon() -> None:
    """The moving picture: weights that recognise digits, from noise to strokes as ε grows."""
    config = load_config("private-logistic-mnist", [f"runs={LEVEL_RUNS}", "metrics=['accuracy']"], None, None)
    config = config.model_copy(update={"record_every": config.rounds})

    def trained(privacy: dict[str, object]) -> Result:
        return experiment.run(config.model_copy(update={"privacy": config.privacy.model_copy(update=privacy)}))

    def accuracy(result: Result) -> float:
        return 100.0 * float(result.curve("accuracy")[:, -1].mean())

    results = [trained({"epsilon": epsilon}) for epsilon in DIGIT_EPSILONS]
    reached, clean = [accuracy(one) for one in results], accuracy(trained({"enabled": False}))
    trivial = 100.0 * next(one for one in results[0].measures if one.name == "accuracy").whole.baseline

    figure, axes = plt.subplot_mosaic(
        "abc;ddd", figsize=(6.4, 5.0), dpi=80, layout="constrained", height_ratios=[1.15, 1.0]
    )
    weights = [axes[name].imshow(np.zeros((28, 28)), cmap="RdBu_r", vmin=-1.0, vmax=1.0) for name in "abc"]
    for name, cluster in zip("abc", results[0].cluster_ids, strict=True):
        axes[name].set_title(" or ".join(cluster.split("|")) + "?", fontsize=12)
        axes[name].set(xticks=[], yticks=[])
    below = axes["d"]
    below.axhline(clean, color=GREY, linestyle="-.", linewidth=1.0)
    below.text(0.1, clean + 1.0, f"without privacy: {clean:.0f} %", fontsize=8, color=GREY)
    below.axhline(trivial, color=GREY, linestyle=":")
    below.text(
        30.0, trivial + 1.0, f"always the more frequent digit: {trivial:.0f} %", fontsize=8, color=GREY, ha="right"
    )
    (line,) = below.plot([], [], color=CLUSTER_COLOURS[0], linewidth=2.2)
    (dot,) = below.plot([], [], "o", color=CLUSTER_COLOURS[1], markersize=9)
    below.set(xscale="log", xlim=(0.09, 33.0), ylim=(45, 103), xlabel="ε (less privacy to the right)")
    below.set_ylabel("test images right [%]")
    below.set_xticks([0.1, 0.3, 1.0, 3.0, 10.0, 30.0], ["0.1", "0.3", "1", "3", "10", "30"])
    below.minorticks_off()
    below.spines[["top", "right"]].set_visible(False)

    def draw(place: int) -> None:
        for image, cluster in zip(weights, results[place].cluster_ids, strict=True):
            pixels = results[place].cluster(cluster)[:784].reshape(28, 28)
            image.set_data(pixels / np.abs(pixels).max())
        line.set_data(DIGIT_EPSILONS[: place + 1], reached[: place + 1])
        dot.set_data([DIGIT_EPSILONS[place]], [reached[place]])
        below.set_title(f"ε = {DIGIT_EPSILONS[place]:g}: {reached[place]:.0f} % right", fontsize=13)

    frames = []
    for place in range(len(results)):
        draw(place)
        figure.canvas.draw()
        frames.append(np.asarray(figure.canvas.buffer_rgba())[..., :3].copy())
    some = Image.fromarray(np.concatenate([frames[0], frames[len(frames) // 2], frames[-1]]))
    palette = some.quantize(COLOURS, dither=Image.Dither.NONE)  # of all frames: small, and none of them flickers
    shown = [Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    times = [FIRST_SHOWN, *[EACH_SHOWN] * (len(shown) - 2), LAST_SHOWN]
    name = PICTURES / "digits-against-epsilon.gif"
    shown[0].save(name, save_all=True, append_images=shown[1:], duration=times, loop=0, optimize=True)


def private_run() -> None:
    """What `make run` leaves: its curves and its page."""
    from tests.browser import browser

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        experiment.run(load_config("private-huber", [], None, None), out=folder).save(folder)
        (PICTURES / "private-run.png").write_bytes((folder / "curves.png").read_bytes())
        with browser() as chromium:
            page = chromium.new_page(viewport={"width": 1180, "height": 1560})
            page.goto((folder / "report.html").as_uri())
            chart = page.locator(".frame svg").first.bounding_box()
            page.mouse.move(chart["x"] + 0.6 * chart["width"], chart["y"] + 0.5 * chart["height"])
            page.screenshot(path=PICTURES / "report-page.png")


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    pictures = {
        one.__name__: one for one in (curves_and_network, error_against_epsilon, digits_against_epsilon, private_run)
    }
    for name in sys.argv[1:] or pictures:
        pictures[name]()
