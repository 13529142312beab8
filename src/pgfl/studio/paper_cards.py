"""What the paper claims about a figure, with verdicts; and digits with the models' answers."""

from __future__ import annotations

import html
from collections.abc import Sequence

from nicegui import ui

from pgfl.studio.figure_presets import ClaimShown, Figure
from pgfl.studio.pictures import Task
from pgfl.studio.shell import card, note


class ClaimsCard:
    """The claims of a figure beside what was measured."""

    def __init__(self) -> None:
        with ui.element("div").classes("wide") as self.box, card("What the paper claims, and what was measured"):
            self.claims = ui.html("", sanitize=False).classes("claims")
            note("Verdicts of `pgfl reproduce all` over many runs; the curve above is one run.")

    def show(self, figure: Figure | None) -> None:
        """The claims of a figure; hidden where the preset is none."""
        self.box.set_visibility(figure is not None)
        self.claims.content = "".join(_claim_html(claim) for claim in figure.claims) if figure else ""


class DigitsCard:
    """Learned weights as pictures, and test images with the model's answer."""

    def __init__(self) -> None:
        with ui.element("div").classes("wide") as self.box, card("Digits"):
            note(
                "The learned weights of each cluster (red votes for the second group of digits, blue for the first), "
                "and test images with the model's answer."
            )
            self.digits = ui.html("", sanitize=False)

    def show(self, tasks: Sequence[Task]) -> None:
        """The pictures of every cluster."""
        self.digits.content = f'<div class="digits">{"".join(_task_html(task) for task in tasks)}</div>'


def _claim_html(claim: ClaimShown) -> str:
    kind = {"holds": "holds", "does not hold": "fails"}.get(claim.verdict, "partly")
    value = "" if claim.value is None else f": {claim.value:.3g} {claim.unit}".rstrip()
    bounds = "" if claim.low is None or claim.high is None else f" [{claim.low:.3g}, {claim.high:.3g}]"
    where = f" Where: {claim.where}." if claim.where else ""
    return (
        f'<div class="claim"><span class="tag {kind}">{html.escape(claim.verdict)}</span>'
        f"<span>{html.escape(claim.claim)}</span>"
        f'<span class="note">{html.escape(claim.measured + value + bounds)}.{html.escape(where)}</span></div>'
    )


def _task_html(task: Task) -> str:
    images = "".join(
        f'<figure class="{"" if one.right else "miss"}"><img src="{one.picture}" width="64" height="64" '
        f'alt="a test image labelled {html.escape(one.label)}"/>says {html.escape(one.predicted)}<br/>'
        f"{100 * one.probability:.0f} %</figure>"
        for one in task.samples
    )
    return (
        f'<div class="digit-task"><b>{html.escape(task.cluster)}</b><div class="pictures"><figure>'
        f'<img src="{task.weights}" width="96" height="96" alt="learned weights"/>weights</figure>'
        f"{images}</div></div>"
    )
