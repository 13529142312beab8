"""Plan and run cards of the Your data view, and the commands behind them."""

from __future__ import annotations

import asyncio
import contextlib
import html
import json
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nicegui import background_tasks, run, ui
from nicegui.client import Client

from pgfl.config import Config
from pgfl.results.folder import CONFIG, fresh_folder
from pgfl.results.report.effects import effects, listed_coefficients
from pgfl.results.report.figures import LABELS, figure
from pgfl.results.report.pictures import learned, legend, membership
from pgfl.results.result import Result
from pgfl.results.verdict import Verdict
from pgfl.studio import charts
from pgfl.studio.runs_view import PREFERRED, entry, history_of
from pgfl.studio.shell import Look, Promise, button, card, chart, note, redraw, save_button, table_html

COMMAND = "from pgfl.cli import main; main()"
STOPPED = 130


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """What was wrong, as the command said it."""
        lines = [line.removeprefix("pgfl: ") for line in self.err.strip().splitlines() if line.strip()]
        return lines[-1] if lines else f"The command ended with code {self.code}."


class Command:
    """A `pgfl` command that is going on; it can be stopped as Ctrl-C does."""

    def __init__(self, arguments: Sequence[str], folder: Path) -> None:
        self.arguments, self._folder = list(arguments), folder
        self._process: asyncio.subprocess.Process | None = None

    @property
    def running(self) -> bool:
        """Whether it has been started and has not ended."""
        return self._process is not None and self._process.returncode is None

    async def finished(self) -> Ended:
        """Start it, and wait until it has ended."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-c", COMMAND, *self.arguments, cwd=self._folder,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            out, err = await self._process.communicate()
        finally:
            self.kill()
        return Ended(self._process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace"))

    def stop(self) -> None:
        """Interrupt it; a run keeps a checkpoint to go on from."""
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        """End it at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)


class PlanCard:
    """What a private training will achieve, foretold before anything is spent; its settings can be taken over."""

    def __init__(self, look: Look, client: Client, workspace: Path, use: Callable[[str], None]) -> None:
        self.look, self.client, self.workspace = look, client, workspace
        self.command: Command | None = None
        self.planned: Path | None = None
        self._found: dict[str, Any] | None = None
        self._use = use
        with ui.element("div") as self.box, card("Plan") as head:
            self.line = ui.label().classes("verdict")
            self.chart = chart({"series": []}, "Predicted error against ε", small=True).props('data-chart="plan"')
            save_button(head, self.chart, "plan", look)
            self.helps = ui.html("", sanitize=False)
            with ui.element("div").classes("tools"):
                self.take = button("Use these settings", "check", self._taken)
                self.stop = button("Stop", "stop", lambda: self.command.kill() if self.command else None)
        self.box.set_visibility(False)
        look.on_change(self._draw)

    def clear(self) -> None:
        """Forget what was planned for other settings."""
        if self.command is not None:
            self.command.kill()
        self.planned = self._found = None
        self.box.set_visibility(False)

    def start(self, config: Path) -> None:
        """Plan a config, in a process of its own."""
        background_tasks.create(self._carry_out(config))

    async def _carry_out(self, config: Path) -> None:
        self.planned = self._found = None
        out = config.with_name("planned.toml")
        out.unlink(missing_ok=True)
        self.command = Command(["plan", str(config.resolve()), "--json", "--out", str(out.resolve())], self.workspace)
        with self.client:
            self.box.set_visibility(True)
            self.take.set_visibility(False)
            self.stop.set_visibility(True)
            self.line.text, self.helps.content = "trying settings on made-up data of the same shape …", ""
            redraw(self.chart, {"series": []})
        ended = await self.command.finished()
        with self.client:
            self.stop.set_visibility(False)
            if ended.code:
                self.line.text = "stopped" if ended.code < 0 else ended.sentence
                return
            self._found, self.planned = json.loads(ended.out), out
            self.take.set_visibility(True)
            self._draw()

    def _draw(self) -> None:
        found = self._found
        if found is None:
            return
        self.line.text = found["verdict"]
        measure = "NMSD [dB]" if found["unit"] == "dB" else "accuracy [%]"
        points = sorted((float(level), value) for level, value in found["by_epsilon"].items())
        levels, errors = [x for x, _ in points], [y for _, y in points]
        clean, colours = [found["without_privacy"]] * len(points), self.look.colours
        drawn = [
            charts.Line("predicted", levels, errors, colours.main, 2.4),
            charts.Line("without privacy", levels, clean, colours.other, 1.6, "dashed"),
        ]
        redraw(self.chart, charts.lines(drawn, colours, "ε", measure, log_x=True))
        rows = [[name, f"{gain:+.1f} {found['unit']}"] for name, gain in found["helps"].items()]
        self.helps.content = table_html(["what would help", "gain"], rows, frozenset({1}))

    def _taken(self) -> None:
        if self.planned is not None:
            self._use(self.planned.read_text("utf-8"))


BETWEEN_LOOKS = 0.4  # seconds
MOST_COEFFICIENTS = 200
MOST_PREDICTIONS = 12
UNITS = "In the table's units, with 95 % confidence intervals; coloured where the interval does not contain 0."


class RunCard:
    """`pgfl run` as a card: live curve, stop, verdict, measures, coefficients, predictions, downloads."""

    def __init__(self, look: Look, client: Client, workspace: Path, results: Path) -> None:
        self.look, self.client, self.workspace, self.results = look, client, workspace, results
        self.command: Command | None = None
        self.folder: Path | None = None
        with ui.element("div").classes("wide rows") as self.box:
            with card("Run") as head:
                self.line = ui.label("").props('aria-live="polite"')
                with ui.element("div").classes("tools"):
                    self.bar = ui.linear_progress(0.0, show_value=False).style("width: 320px").props("instant-feedback")
                    self.stop = button("Stop", "stop", self._stop)
                    self.resume = button("Go on", "play_arrow", self._resume)
                self.curve = chart({"series": []}, "Curve of the run", small=True).props('data-chart="own-run"')
                save_button(head, self.curve, "run", look)
                self.wrong = ui.label().classes("wrong").props('role="alert"')
                self.verdict = ui.label().classes("verdict").props('id="verdict"')
            with ui.element("div").classes("studio-page studio-two").style("padding: 0") as self.outcome:
                with ui.element("div").classes("wide") as self.promise_box, card("Privacy"):
                    self.promise = Promise()
                with card("Measures on held-out rows"):
                    self.measures = ui.html("", sanitize=False).classes("scroll")
                with card("Coefficients") as head:
                    self.coefficients = ui.html("", sanitize=False).classes("scroll")
                with card("What was found", "wide"):
                    self.found = ui.html("", sanitize=False)
                with card("Predictions", "wide"):
                    self._prediction_form()
                with card("Files", "wide"), ui.element("div").classes("tools"):
                    for name in ("model.pgfl", CONFIG, "history.csv", "report.html"):
                        button(name, "download", partial(self._download, name))
        self.box.set_visibility(False)
        self.timer = ui.timer(BETWEEN_LOOKS, self._look, active=False)
        look.on_change(self._draw)
        client.on_delete(lambda: self.command.stop() if self.command else None)

    def _prediction_form(self) -> None:
        note("Predict the rows of a table with the same columns; the target is not needed.")
        with ui.element("div").classes("tools"):
            self.path = ui.input(label="path of a table").props("dense outlined").style("width: 420px")
            button("Predict", "trending_up", lambda: background_tasks.create(self._predict())).props(
                'aria-label="Predict"'
            )
            self.download = button("Download", "download", self._download_predictions)
            self.download.set_visibility(False)
        self.predict_wrong = ui.label().classes("wrong").props('role="alert"')
        self.predictions = ui.html("", sanitize=False).classes("scroll")
        self.predicted: Path | None = None

    def clear(self) -> None:
        """Hide what was trained with other settings; its folder stays. A run that goes on is left alone."""
        if self.command is None or not self.command.running:
            self.box.set_visibility(False)

    async def start(self, config: Path, checked: Config, table: str) -> None:
        """Run a config in a new result folder."""
        self.folder = fresh_folder(self.results, config.stem)
        self.path.value = table
        await self._carry_out(
            ["run", str(config.resolve()), "--out", str(self.folder.resolve()), "--json"], checked.rounds
        )

    async def _carry_out(self, arguments: list[str], rounds: int) -> None:
        with self.client:
            self.box.set_visibility(True)
            self.outcome.set_visibility(False)
            self.resume.set_visibility(False)
            self.stop.set_visibility(True)
            self.wrong.text = self.verdict.text = ""
            self.verdict.set_visibility(False)
            self.line.text, self.bar.value = "reading the table …", 0.0
            redraw(self.curve, {"series": []})
            self.timer.active = True
        self.command = Command(arguments, self.workspace)
        ended = await self.command.finished()
        with self.client:
            await self._ended(ended)

    async def _ended(self, ended: Ended) -> None:
        self.timer.active = False
        self.stop.set_visibility(False)
        assert self.folder is not None
        if ended.code == STOPPED:
            kept = self.folder.is_dir()
            self.line.text = f"stopped; {self.folder} keeps a checkpoint" if kept else "stopped; nothing was kept"
            self.resume.set_visibility(kept)
            return
        try:
            summary = json.loads(ended.out)
        except ValueError:
            self.line.text, self.wrong.text = "", ended.sentence
            return
        self.bar.value = 1.0
        self.line.text = f"{summary['rounds']} rounds in {summary['seconds']:.1f} s: {self.folder}"
        verdict = Verdict.from_json(summary["verdict"]) if summary.get("verdict") else None
        self.verdict.text = "" if verdict is None else verdict.text
        self.verdict.classes(remove="bad good", add="" if verdict is None else verdict.tone)
        self.verdict.set_visibility(verdict is not None)
        result = await run.io_bound(Result.load, self.folder)
        if result is not None:
            self._show(result)

    def _show(self, result: Result) -> None:
        self.outcome.set_visibility(True)
        self.measures.content = measures_html(result)
        self.coefficients.content = coefficients_html(result)
        self.found.content = found_html(result)
        self.promise_box.set_visibility(result.privacy_card is not None)
        self.promise.show(result.privacy_card)
        self.predictions.content, self.predict_wrong.text = "", ""
        self.download.set_visibility(False)
        self._draw()

    def _look(self) -> None:
        """Follow the run by the file that it writes."""
        if self.folder is None or not self.folder.is_dir():
            return
        now = entry(self.folder)
        if now.live:
            done, total = now.live.get("round", 0), max(now.live.get("rounds", 1), 1)
            self.bar.value = done / total
            self.line.text = f"round {done} of {total}"
            self._draw()

    def _draw(self) -> None:
        if self.folder is None or not self.folder.is_dir():
            return
        history = history_of(entry(self.folder))
        metric = next(
            (name for name in (*PREFERRED, *history) if name in history and name not in ("run", "round")), None
        )
        if metric is None:
            return
        values = [None if value is None else charts.shown_value(metric, value) for value in history[metric]]
        line = charts.Line(
            LABELS[metric], [float(value or 0) for value in history["round"]], values, self.look.colours.main, 2.6
        )
        options = charts.lines([line], self.look.colours, "round n", charts.axis_name(metric))
        options["xAxis"]["max"] = "dataMax"
        redraw(self.curve, options)

    def _stop(self) -> None:
        if self.command is not None:
            self.line.text = "stopping after this round …"
            self.command.stop()

    def _resume(self) -> None:
        assert self.folder is not None
        background_tasks.create(self._carry_out(["run", "--resume", "--out", str(self.folder.resolve()), "--json"], 0))

    async def _predict(self) -> None:
        assert self.folder is not None
        out = fresh_folder(self.workspace, "predictions").with_suffix(".csv")
        table = Path(str(self.path.value)).expanduser()
        arguments = ["predict", str(self.folder.resolve()), str(table.resolve()), "--out", str(out.resolve())]
        ended = await Command(arguments, self.workspace).finished()
        with self.client:
            self.predict_wrong.text = "" if ended.code == 0 else ended.sentence
            self.download.set_visibility(ended.code == 0)
            self.predictions.content = predictions_html(out) if ended.code == 0 else ""
            self.predicted = out if ended.code == 0 else None

    def _download_predictions(self) -> None:
        if self.predicted is not None:
            ui.download.content(self.predicted.read_bytes(), "predictions.csv")

    def _download(self, name: str) -> None:
        if self.folder is None or not (self.folder / name).is_file():
            return
        content = (self.folder / name).read_bytes()
        if name == CONFIG:  # a table that was dropped here is to lie beside it
            content = content.replace(f"{self.workspace.resolve()}/".encode(), b"")
        ui.download.content(content, name)


def measures_html(result: Result) -> str:
    """Held-out measures of all clients, of the clusters, of the worst and the median client, beside the baseline."""
    if not result.measures:
        return "<div class='note'>No rows were held out; set `test` in the config.</div>"
    names = [LABELS[one.name] for one in result.measures]

    def row(name: str, figures: list[Any]) -> list[Any]:
        pairs = zip(result.measures, figures, strict=True)
        return [
            name,
            *("–" if f is None else f"{figure(m.name, f.value)} ({figure(m.name, f.baseline)})" for m, f in pairs),
        ]

    rows = [row("all clients", [one.whole for one in result.measures])]
    clusters = list(dict.fromkeys(cluster for one in result.measures for cluster in one.clusters))
    if len(clusters) > 1:
        rows += [row(name, [one.clusters.get(name) for one in result.measures]) for name in clusters[:20]]
    rows.append(row("worst client", [one.worst for one in result.measures]))
    rows.append(row("median client", [one.median for one in result.measures]))
    header = ["held-out rows (baseline)", *names]
    return table_html(header, rows, frozenset(range(1, len(header))))


def coefficients_html(result: Result) -> str:
    """Return one row per feature, one column per cluster; of a softmax model one column per cluster and class.

    In the table's units with an interval where standard errors are known, else of encoded features.
    """
    if result.fits is not None and not result.classes:
        return _intervals_html(result)
    classes = result.classes or 1
    names = list(result.feature_names or [f"x{place}" for place in range(result.features)])
    if result.intercept and len(names) < result.features:
        names.append("intercept")
    header, columns = ["feature"], []
    for cluster in result.cluster_ids:
        model = result.cluster(cluster).reshape(classes, -1)
        for place in range(classes):
            header.append(cluster if classes == 1 else f"{cluster}, class {place}")
            columns.append(model[place])
    rows = [[name, *(f"{column[place]:.4g}" for column in columns)] for place, name in enumerate(names)]
    return table_html(header, rows[:MOST_COEFFICIENTS], frozenset(range(1, len(header))))


def _intervals_html(result: Result) -> str:
    """Return estimates with their 95 % intervals; those that do not contain 0 stand out."""
    rows: dict[str, dict[str, tuple[str, str]]] = {}
    for row in listed_coefficients(result).head(MOST_COEFFICIENTS).iter_rows(named=True):
        feature = row["feature"] + (f", against {row['reference']}" if row["reference"] else "")
        low, high = row["low"], row["high"]
        sure = low is not None and (low > 0 or high < 0)
        value = row["coefficient"] if row["estimate"] is None else row["estimate"]
        text = f"{value:.4g}" + ("" if low is None else f" [{low:.3g}, {high:.3g}]")
        rows.setdefault(feature, {})[row["cluster"]] = (text, "differs" if sure else "")
    header = ["feature", *result.cluster_ids]
    cells = [[name, *(own.get(cluster, "–") for cluster in result.cluster_ids)] for name, own in rows.items()]
    table = table_html(header, cells, frozenset(range(1, len(header))))
    return f"{table}<div class='note'>{html.escape(UNITS)} {html.escape(result.fits_note)}</div>"


def found_html(result: Result) -> str:
    """Return the pictures of who belongs to whom, who learned from whom, and how columns act; and what they come to."""
    drawn = [picture for picture in (membership(result), learned(result), *effects(result)) if picture is not None]
    pictures = "".join(
        f"<figure><figcaption>{html.escape(one.title)}</figcaption>{one.svg}"
        f'<div class="note">{html.escape(one.words)}</div></figure>'
        for one in drawn
    )
    keys = "".join(
        f'<span><i style="background:{colour}"></i>{html.escape(name)}</span>' for colour, name in legend(result).keys
    )
    notes = "".join(f"<p>{html.escape(note)}</p>" for note in result.notes)
    return f'{notes}<div class="found">{pictures}</div>' + (f'<div class="keys">{keys}</div>' if drawn else "")


def predictions_html(path: Path) -> str:
    """Return the first predicted rows."""
    import polars as pl

    frame = pl.read_csv(path, n_rows=MOST_PREDICTIONS, infer_schema=False)
    shown = frame.select(["prediction", *[name for name in frame.columns if name != "prediction"]])
    rows = [[_short(row[0]), *row[1:]] for row in shown.rows()]
    return table_html(shown.columns, rows)


def _short(text: str) -> str:
    """Return a number with six figures; anything else as it is."""
    try:
        return f"{float(text):.6g}"
    except ValueError:
        return text
