"""The model card of a result: what it was trained on, how good it is, what is promised, and what it is for.

Markdown with a page of metadata in front, as model hubs read it. Everything in it is also in the summary, so that it
says no more about private records than a result does.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pgfl.drawing.pages import counted
from pgfl.federation.columns import CategoryColumn, FeatureColumn, NumberColumn
from pgfl.metrics import MEASURES
from pgfl.results.report.figures import LABELS, figure

if TYPE_CHECKING:
    from pgfl.federation.encoding import RowEncoding
    from pgfl.results.calibration import Calibration
    from pgfl.results.measures import Figure
    from pgfl.results.result import Result

PIPELINE = {
    "regression": "tabular-regression",
    "classification": "tabular-classification",
    "multiclass": "tabular-classification",
}
MOST_COLUMNS, MOST_CLUSTERS, MOST_CATEGORIES = 60, 60, 8
NO_PRIVACY = "Privacy was off: nothing is promised about the records, and models may disclose some of them."
STATE_USE = "> State here who uses these models, for which decision, and who is responsible for it."


def model_card(result: Result) -> str:
    """Return the card as Markdown."""
    parts = [
        _metadata(result),
        f"# {result.config.name if result.config else 'Model'}",
        _details(result),
        _data(result),
        _measures(result),
        _privacy(result),
        _use(result),
        _limits(result),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _tasks(result: Result) -> list[str]:
    from pgfl.results.model import task_of

    return list(dict.fromkeys(result.tasks or map(task_of, result.objectives)))


def _metadata(result: Result) -> str:
    tags = ["federated-learning", *(["differential-privacy"] if result.private else [])]
    lines = ["library_name: pgfl", f"pipeline_tag: {PIPELINE[_tasks(result)[0]]}", f"tags: {json.dumps(tags)}"]
    return "\n".join(["---", *lines, "---"])


def _details(result: Result) -> str:
    kinds = " and ".join(dict.fromkeys(result.objectives))
    lines = [
        f"- {counted(len(result.cluster_ids), 'cluster')} with a linear model each ({kinds}), d = {result.dimension}",
        f"- trained by {counted(len(result.client_ids), 'client')} at {counted(len(result.server_ids), 'server')} in "
        f"{counted(int(result.rounds[-1]), 'round')}",
        *([f"- verdict: {result.verdict.kind}. {result.verdict.text}"] if result.verdict else []),
        *([f"- config {result.config_digest}, in `config.toml`"] if result.config_digest else []),
        "- predict with `pgfl predict`, or `Model.load` in Python; coefficients: `pgfl coefficients`",
    ]
    return "\n".join(["## Model details", "", *lines])


def _data(result: Result) -> str:
    encoding = result.encoding
    if encoding is None:
        return f"## Data\n\nArrays of {counted(result.features, 'feature')} without names, or generated data."
    lines = [f"Target: {_code(encoding.target.name)}, {_target(encoding)}. Columns:", ""]
    lines += [f"- {_code(column.name)}: {_column(column)}" for column in encoding.columns[:MOST_COLUMNS]]
    if (more := len(encoding.columns) - MOST_COLUMNS) > 0:
        lines.append(f"- … {more} more")
    if encoding.places.cluster:
        lines += ["", f"Clusters are named by {_code(encoding.places.cluster)}."]
    if encoding.read_from_records:
        named = ", ".join(map(_code, encoding.read_from_records[:MOST_CATEGORIES]))
        lines += ["", f"Bounds, categories or labels of these columns were computed from training records: {named}."]
    return "\n".join(["## Data", "", *lines])


def _target(encoding: RowEncoding) -> str:
    target = encoding.target
    if target.labels is not None:
        return f"labels {_few(target.labels)}"
    return "numbers" if target.bounds is None else f"numbers from {target.bounds[0]:g} to {target.bounds[1]:g}"


def _column(column: FeatureColumn) -> str:
    if isinstance(column, CategoryColumn):
        return f"one of {_few(column.categories)}{', or another' if column.other else ''}"
    if isinstance(column, NumberColumn):
        curve = f", a curve of {column.knots} knots" if column.knots else ""
        return f"a number{f' from {column.bounds[0]:g} to {column.bounds[1]:g}' if column.bounds else ''}{curve}"
    return counted(len(column.feature_names), "feature")


def _measures(result: Result) -> str:
    if not result.measures:
        return "## Measures\n\nNo rows were held out, so that nothing is known about predictions of new rows."
    names = [each.name for each in result.measures]
    clusters = list(dict.fromkeys(cluster for each in result.measures for cluster in each.clusters))
    rows: list[tuple[str, list[Figure | None]]] = [("all clients", [each.whole for each in result.measures])]
    rows += [(name, [each.clusters.get(name) for each in result.measures]) for name in clusters[:MOST_CLUSTERS]]
    table = [
        "| held-out rows (trivial baseline) | " + " | ".join(LABELS[name] for name in names) + " |",
        "|---|" + "---|" * len(names),
        *(f"| {_cell(name)} | " + " | ".join(map(_figure, names, shown)) + " |" for name, shown in rows),
    ]
    lower = [LABELS[name] for name in names if MEASURES[name].lower_is_better]
    better = f"Lower is better for {' and '.join(lower)}." if lower else ""
    compared = "" if result.alternatives is None else result.alternatives.sentence
    trusted = "" if result.calibration is None else _calibrated(result.calibration)
    parts = ["## Measures", "\n".join(table), better, trusted, _decisions(result), compared]
    return "\n\n".join(filter(None, parts))


def _calibrated(calibration: Calibration) -> str:
    """Return how far probabilities are to be trusted."""
    return f"{calibration.sentence} `pgfl predict --calibrated` corrects them."


def _decisions(result: Result) -> str:
    """Return how probabilities of two labels become predicted labels."""
    if _tasks(result) != ["classification"]:
        return ""
    if result.costs is None:
        return (
            "Labels are the more probable ones: the threshold is 0.5. Where a miss costs a times as much as a false "
            "alarm, 1/(1 + a) of a corrected probability costs least: `--costs a:1`, or `costs` under `[data]`."
        )
    miss, false_alarm = result.costs
    label, chance = result.model().label_names[1], false_alarm / (miss + false_alarm)
    corrected = " corrected" if result.calibration else ""
    return (
        f"Predicted labels cost least where a miss costs {miss:g} and a false alarm {false_alarm:g}, as the config "
        f"states: {_code(label)} from a{corrected} probability of {chance:.3g} on. The accuracy above is that of a "
        "threshold of 0.5."
    )


def _figure(name: str, shown: Figure | None) -> str:
    return "–" if shown is None else f"{figure(name, shown.value)} ({figure(name, shown.baseline)})"


def _privacy(result: Result) -> str:
    card = result.privacy_card
    if card is None:
        return f"## Privacy\n\n{NO_PRIVACY}"
    return "\n".join(["## Privacy", "", *(f"- {name}: {value.rstrip('.')}." for name, value in card.lines)])


def _use(result: Result) -> str:
    encoding = result.encoding
    predicted = "targets" if encoding is None else _code(encoding.target.name)
    lines = [
        STATE_USE,
        "",
        f"- Made to predict {predicted} of rows with the columns above, each by the model of its cluster.",
        "- Not for clusters without a measure above, nor for rows unlike those of training; numbers beyond their "
        + "bounds count as the bound.",
        "- Coefficients describe associations; they do not say what would happen if a column were changed.",
    ]
    return "\n".join(["## Intended use", "", *lines])


def _limits(result: Result) -> str:
    known = [note for note in result.notes if result.alternatives is None or note != result.alternatives.sentence]
    lines = [f"- {_plain(line)}" for line in [*known, *result.warnings]]
    return "\n".join(["## Limitations", "", *lines]) if lines else ""


def _few(names: tuple[str, ...]) -> str:
    return ", ".join(map(_code, names[:MOST_CATEGORIES])) + (", …" if len(names) > MOST_CATEGORIES else "")


def _code(name: str) -> str:
    """Return a name from a table as Markdown that stays on its line and marks up nothing."""
    text = _plain(name).replace("`", "'")
    return f"`{text}`"


def _cell(name: str) -> str:
    return _code(name).replace("|", "\\|")


def _plain(text: str) -> str:
    return " ".join(text.split())
