"""What every view has: the bar on top, cards, pictures that can be saved, and text that can be copied."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import resources
from typing import Any

from nicegui import json as page_json
from nicegui import ui
from nicegui.client import Client

from pgfl.privacy.card import PrivacyCard
from pgfl.studio.charts import BLUE, Theme, theme

VIEWS = {"/": "Play", "/data": "Your data", "/runs": "Runs", "/network": "Network"}
DARK_COOKIE = "pgfl-studio-dark"


class Look:
    """Whether a page is dark, and what has to be drawn again when that changes."""

    def __init__(self, dark: bool) -> None:
        self.mode = ui.dark_mode(dark)
        self._redraw: list[Callable[[], None]] = []

    @property
    def colours(self) -> Theme:
        """The colours to draw with."""
        return theme(bool(self.mode.value))

    def on_change(self, redraw: Callable[[], None]) -> None:
        """Draw again when the page becomes dark or light."""
        self._redraw.append(redraw)

    def set(self, dark: bool) -> None:
        """Make the page dark or light."""
        if dark != self.mode.value:
            self.mode.value = dark
            for redraw in self._redraw:
                redraw()

    def toggle(self) -> None:
        """The other way round, remembered by the browser."""
        self.set(not self.mode.value)
        ui.run_javascript(f"document.cookie='{DARK_COOKIE}={int(bool(self.mode.value))}; Path=/; SameSite=Lax'")


@contextmanager
def shell(view: str, client: Client, layout: str) -> Iterator[Look]:
    """The frame of a view; inside, its cards are made."""
    stated = client.request.cookies.get(DARK_COOKIE)
    ui.add_css((resources.files(__package__) / "studio.css").read_text("utf-8"))
    ui.colors(primary=BLUE)
    ui.page_title(f"{VIEWS[view]} · pgfl studio")
    look = Look(stated == "1")
    with ui.element("nav").classes("studio-bar").props('aria-label="Views"'):
        ui.html("pgfl <span>studio</span>", sanitize=False, tag="div").classes("studio-name")
        for path, name in VIEWS.items():
            link = ui.link(name, path).classes("active" if path == view else "")
            if path == view:
                link.props('aria-current="page"')
        ui.element("div").classes("spring")
        button("Share", "link", lambda: copy_address()).tooltip("Copy the address of this view")
        button("", "contrast", look.toggle).props('aria-label="Dark or light"').tooltip("Dark or light")
    with ui.element("main").classes(f"studio-page {layout}"):
        yield look

    async def follow_system() -> None:
        if stated is None:
            with suppress(TimeoutError):  # the page was closed before it answered
                look.set(
                    bool(await ui.run_javascript("matchMedia('(prefers-color-scheme: dark)').matches", timeout=30))
                )

    client.on_connect(follow_system)


@contextmanager
def card(title: str, classes: str = "") -> Iterator[ui.element]:
    """A card with a title; returns the row of the title, to which buttons can be added."""
    with ui.element("section").classes(f"card {classes}").props(f'aria-label="{html.escape(title)}"'):
        with ui.element("div").classes("card-head") as head:
            ui.html(html.escape(title), sanitize=False, tag="h2")
            ui.element("div").classes("spring")
        yield head


def button(text: str, icon: str, act: Callable[[], Any], **look: Any) -> ui.button:
    """Return a small flat button."""
    return ui.button(text, icon=icon, on_click=act, **look).props("flat dense no-caps size=sm")


def note(text: str) -> ui.label:
    """Return a line of smaller text."""
    return ui.label(text).classes("note")


def chart(options: dict[str, Any], about: str, *, small: bool = False) -> ui.echart:
    """Return a picture, with a text for those who do not see it."""
    drawn = ui.echart(options).classes("chart small" if small else "chart")
    return drawn.props(f'role="img" aria-label="{html.escape(about)}"')


def set_ends(bar: ui.slider, low: float, high: float) -> None:
    """The ends of a slider, as numbers: `props("min=…")` sends text, with which a slider cannot be dragged."""
    bar.props["min"], bar.props["max"] = low, high
    bar.update()


def redraw(drawn: ui.echart, options: dict[str, Any]) -> None:
    """Other options for a picture; what is not in them goes away."""
    drawn.options.clear()
    drawn.options.update(options)
    drawn.update()


def redraw_curves(drawn: ui.echart, options: dict[str, Any]) -> None:
    """The same picture with other curves, sent to the chart itself: quicker than through the page's elements.

    Sent through both, it would come twice, and the first time with curves that are to go away. Tooltips and zoom stay
    as `redraw` has drawn them.
    """
    with drawn.props.suspend_updates():
        drawn.options.clear()
        drawn.options.update(options)
    sent = page_json.dumps({key: value for key, value in options.items() if key not in ("tooltip", "dataZoom")})
    drawn.client.run_javascript(
        f"(() => {{ const draw = () => {{ const found = getElement({drawn.id}); if (!found) return; "
        f"if (found.chart) found.chart.setOption({sent}, {{replaceMerge: ['series']}}); else setTimeout(draw, 10); }}; "
        "draw(); })()"
    )


def save_button(head: ui.element, drawn: ui.echart, name: str, look: Look) -> None:
    """A button that saves a picture as PNG, on the background of the page."""

    def save() -> None:
        wanted = json.dumps({"type": "png", "pixelRatio": 2, "backgroundColor": look.colours.surface})
        ui.run_javascript(
            f"const a = document.createElement('a'); a.href = getElement({drawn.id}).chart.getDataURL({wanted}); "
            f"a.download = {json.dumps(name + '.png')}; a.click();"
        )

    with head:
        button("", "photo_camera", save).props(f'aria-label="Save picture: {html.escape(name)}"').tooltip(
            "Save picture"
        )


def copy_text(text: str, what: str) -> None:
    """Put text on the clipboard, and say so."""
    ui.clipboard.write(text)
    ui.notify(f"Copied {what}", position="bottom", timeout=1500)


def copy_address() -> None:
    """Put the address of the view on the clipboard; it holds no token."""
    ui.run_javascript("navigator.clipboard.writeText(location.href)")
    ui.notify("Copied the address of this view", position="bottom", timeout=1500)


def show_text(title: str, text: str) -> None:
    """A text in a window, with a button that copies it."""
    with ui.dialog() as dialog, ui.element("div").classes("card").style("min-width: 640px; max-width: 90vw"):
        ui.html(html.escape(title), sanitize=False, tag="h2")
        ui.html(html.escape(text), sanitize=False, tag="pre").classes("code").props('tabindex="0"')
        with ui.element("div").classes("tools"):
            ui.button("Copy", icon="content_copy", on_click=lambda: copy_text(text, title)).props("no-caps unelevated")
            ui.button("Close", on_click=dialog.close).props("no-caps flat")
    dialog.open()


def replace_address(address: str) -> None:
    """Show another address without loading anything."""
    ui.run_javascript(f"history.replaceState(history.state, '', {json.dumps(address)})")


def table(header: list[str], rows: list[list[Any]], numbers: frozenset[int] = frozenset()) -> ui.html:
    """Return a plain table; every cell is text."""
    return ui.html(table_html(header, rows, numbers), sanitize=False)


def table_html(header: list[str], rows: list[list[Any]], numbers: frozenset[int] = frozenset()) -> str:
    """Return the same as HTML, every cell escaped; a pair is (text, class)."""

    def cell(tag: str, place: int, value: Any) -> str:
        text, kind = value if isinstance(value, tuple) else (value, "")
        kind = f"{kind} number" if place in numbers else kind
        return f'<{tag} class="{kind.strip()}">{html.escape(str(text))}</{tag}>'

    head = "".join(cell("th", place, value) for place, value in enumerate(header))
    body = "".join("<tr>" + "".join(cell("td", p, v) for p, v in enumerate(row)) + "</tr>" for row in rows)
    return f'<table class="plain"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


class Promise:
    """The privacy card of a training: its lines, a bar of the budget, and its text to paste."""

    def __init__(self) -> None:
        self._card: PrivacyCard | None = None
        with ui.element("div").classes("promise") as self.box:
            self.lines = ui.html("", sanitize=False).props('id="privacy-card"')
            button("Copy as text", "content_copy", self._copy).tooltip("For a record of processing, for example")
        self.show(None)

    def show(self, card: PrivacyCard | None) -> None:
        """Show a card; nothing without one."""
        self._card = card
        self.box.set_visibility(card is not None)
        if card is None:
            return
        spent = "" if card.spent is None else f'<div class="budget"><i style="width:{100 * card.spent:.1f}%"></i></div>'
        lines = "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd>" for name, value in card.lines)
        self.lines.content = f"{spent}<dl>{lines}</dl>"

    def _copy(self) -> None:
        if self._card is not None:
            show_text("Privacy card", self._card.text())
