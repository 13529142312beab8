"""A studio of one's own for a test, and what its pages show."""

import http.client
import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

PATIENCE = (
    int(os.environ.get("PGFL_PATIENCE", "240")) * 1000
)  # milliseconds; a loaded machine is slow, and a test that passes never waits so long
START = 180.0


class Server:
    """A running studio, its folder, where it keeps what is temporary, and its address."""

    def __init__(self, folder, temporary, address):
        self.folder, self.temporary, self.address = folder, temporary, address
        self.base, _, self.token = address.partition("/?token=")
        self.cookie = _enter(address)


def _enter(address):
    """The cookie that the token of an address is exchanged for; the token is used up."""
    host, _, path = address.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host, timeout=START)
    connection.request("GET", f"/{path}")
    answer = connection.getresponse()
    connection.close()
    assert answer.status == 303
    return answer.getheader("set-cookie").split(";")[0]


@contextmanager
def studio(folder):
    """`pgfl studio` as a process of its own, as a user starts it."""
    temporary = folder / "temporary"
    temporary.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-P", "-c", "from pgfl.cli import main; main()", "studio", "results"]
    log = folder / "studio.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--no-open", "--port", "0"], cwd=folder, stdout=output, stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "TMPDIR": str(temporary)},
        )  # fmt: skip
    try:
        yield Server(folder, temporary, _address(process, log))
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _address(process, log):
    until = time.monotonic() + START
    while time.monotonic() < until:
        found = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", log.read_text(errors="replace"))
        if found:
            return found.group()
        assert process.poll() is None, log.read_text(errors="replace")
        time.sleep(0.05)
    raise AssertionError(f"no address after {START} s: {log.read_text(errors='replace')}")


def open_page(context, server, path="/"):
    """A page that has the cookie; `page.hosts` collects every host that it talks to."""
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.hosts, page.errors = set(), []
    page.on("request", lambda request: page.hosts.add(_host(request.url)))
    page.on("websocket", lambda socket: page.hosts.add(_host(socket.url)))
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    name, _, value = server.cookie.partition("=")
    context.add_cookies([{"name": name, "value": value, "url": server.base, "httpOnly": True, "sameSite": "Lax"}])
    page.goto(f"{server.base}{path}")
    page.wait_for_selector(".studio-bar")
    return page


def copied(page, name):
    """What a button puts on the clipboard, by way of the window that it opens; the context must allow clipboards."""
    page.evaluate("navigator.clipboard.writeText('')")
    page.get_by_role("button", name=name, exact=True).first.click()
    page.get_by_role("button", name="Copy", exact=True).click()
    page.get_by_text(f"Copied {name}").wait_for()
    text = page.wait_for_function("() => navigator.clipboard.readText()").json_value()
    page.get_by_role("button", name="Close").click()
    page.locator("pre.code").wait_for(state="hidden")
    return text


def saved_picture(page, name):
    """The bytes of a picture that a button saves."""
    with page.expect_download() as saved:
        page.get_by_role("button", name=f"Save picture: {name}").click()
    assert saved.value.suggested_filename == f"{name}.png"
    return Path(saved.value.path()).read_bytes()


def _host(url):
    scheme, _, rest = url.partition("://")
    return rest.split("/")[0] if scheme in ("http", "https", "ws", "wss") else scheme


CURVE = """name => {
  const box = document.querySelector(name[0]);
  const chart = box && getElement(Number(box.id.slice(1))).chart;
  const found = chart && chart.getOption().series.find(one => one && one.name.split(', ')[0] === name[1]);
  return found ? found.data : null;
}"""


def series(page, chart, name):
    """The points of a curve as the browser has them; None if it is not drawn."""
    return page.evaluate(CURVE, [f'[data-chart="{chart}"]', name])


def wait_for_series(page, chart, name, length=1):
    """The points of a curve, once it has at least so many."""
    page.wait_for_function(
        f"args => {{ const found = ({CURVE})(args); return found && found.length >= {length}; }}",
        arg=[f'[data-chart="{chart}"]', name],
    )
    return series(page, chart, name)
