"""Who may talk to the page: without a browser, request by request."""

import asyncio
import http.client
import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from pgfl.studio import serving
from pgfl.studio.serving import NO_TOKEN, WRONG_HOST, WRONG_ORIGIN, Guard
from tests.studio.browser import PATIENCE, open_page

PATHS = (
    "/",
    "/data",
    "/runs",
    "/network",
    "/_nicegui_ws/socket.io/?EIO=4&transport=polling",
    "/_nicegui/3.18.0/static/x",
)
UPGRADE = {
    "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}  # fmt: skip
SOCKET = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"


def ask(server, path, *, method="GET", **headers):
    """The status, the body and the headers of an answer."""
    host = server.base.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=120)
    connection.request(method, path, headers={"Host": host, **headers})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode(errors="replace"), dict(answer.getheaders())
    connection.close()
    return found


@pytest.fixture
def cookie(server):
    return server.cookie


@pytest.mark.parametrize("path", PATHS)
def test_without_the_token_nothing_is_answered(server, path):
    assert ask(server, path)[:2] == (403, f"{NO_TOKEN}\n")
    assert ask(server, path, Cookie="pgfl-studio=wrong")[0] == 403
    wrong = path + ("&" if "?" in path else "?") + "token=" + "x" * len(server.token)
    assert ask(server, wrong)[0] == 403


def test_the_websocket_needs_token_host_and_origin(server, cookie):
    own = server.base
    assert ask(server, SOCKET, **UPGRADE, Origin=own)[0] == 403
    assert ask(server, SOCKET, **UPGRADE, Origin="http://evil.example", Cookie=cookie)[0] == 403
    assert ask(server, SOCKET, **UPGRADE, Cookie=cookie, Host="evil.example")[0] == 403
    assert ask(server, SOCKET, **UPGRADE, Origin="null", Cookie=cookie)[0] == 403


def test_other_origins_and_other_hosts_are_refused_even_with_the_token(server, cookie):
    assert ask(server, "/", Cookie=cookie)[0] == 200
    assert ask(server, "/", Cookie=cookie, Origin="http://evil.example")[:2] == (403, f"{WRONG_ORIGIN}\n")
    port = server.base.rpartition(":")[2]
    for host in (f"evil.example:{port}", "127.0.0.1", f"127.0.0.1.evil.example:{port}", f"[::1]:{port}"):
        assert ask(server, "/", Cookie=cookie, Host=host)[:2] == (403, f"{WRONG_HOST}\n")
    assert ask(server, "/", Cookie=cookie, Host=f"localhost:{port}")[0] == 200


def test_every_page_tells_the_browser_to_load_nothing_from_elsewhere(server, cookie):
    for path in ("/", "/data", "/runs", "/network"):
        status, body, headers = ask(server, path, Cookie=cookie)
        assert status == 200
        assert headers["content-security-policy"].startswith("default-src 'self';")
        assert headers["x-frame-options"] == "DENY"
        assert not [
            url for url in re.findall(r"https?://[^\s\"'<>)]+", body) if not url.startswith("http://www.w3.org")
        ]


def test_a_page_of_another_origin_cannot_read_or_steer_the_studio(server, context):
    page = open_page(context, server)
    other = server.base.replace("127.0.0.1", "localhost")
    name, _, value = server.cookie.partition("=")
    context.add_cookies([{"name": name, "value": value, "url": other, "httpOnly": True, "sameSite": "Lax"}])
    page.goto(other)
    tried = page.evaluate(
        """async ([url, socket]) => {
          const read = await fetch(url, {credentials: 'include'}).then(r => r.status, () => 'refused');
          const ws = await new Promise(done => { const s = new WebSocket(socket);
            s.onopen = () => done('open'); s.onerror = () => done('refused'); });
          return [read, ws]; }""",
        [f"{server.base}/runs", server.base.replace("http", "ws") + SOCKET],
    )
    assert tried == ["refused", "refused"]


def test_the_printed_address_was_used_and_works_no_more(server):
    assert ask(server, f"/?token={server.token}")[:2] == (403, f"{NO_TOKEN}\n")
    assert server.token not in server.cookie


def test_the_file_for_other_browsers_works_once_and_then_has_a_new_token(server):
    (entrance,) = server.temporary.glob("pgfl-studio-*/open.html")
    assert stat.S_IMODE(entrance.stat().st_mode) == 0o600
    assert stat.S_IMODE(entrance.parent.stat().st_mode) == 0o700
    first = token_in(entrance)
    assert ask(server, f"/?token={first}")[0] == 303
    assert ask(server, f"/?token={first}")[0] == 403
    assert token_in(entrance) != first
    assert ask(server, f"/?token={token_in(entrance)}")[0] == 303


def test_a_browser_that_is_given_the_file_enters(server, context):
    (entrance,) = server.temporary.glob("pgfl-studio-*/open.html")
    page = context.new_page()
    page.goto(entrance.as_uri())
    page.locator(".studio-bar").wait_for(timeout=PATIENCE)
    assert page.url.partition("?")[0] == f"{server.base}/"
    assert "token" not in page.url


def token_in(entrance):
    return re.search(r"token=([\w-]+)", entrance.read_text()).group(1)


# without a server -----------------------------------------------------------------------------------------------------


def requested(guard, query="", *, kind="http", method="GET", headers=()):
    """What the guard does: the status and the headers of its own answer, or "passed on"."""
    sent = []
    scope = {"type": kind, "method": method, "path": "/runs", "query_string": query.encode(), "headers": [
        (b"host", f"127.0.0.1:{guard.port}".encode()), *headers]}  # fmt: skip

    async def send(message):
        sent.append(message)

    async def receive():
        return {}

    async def app(scope, receive, send):
        sent.append({"status": "passed on", "headers": []})

    guard.app = app
    with ThreadPoolExecutor(1) as other:  # in this thread the browser may have a running loop
        other.submit(asyncio.run, guard(scope, receive, send)).result()
    return sent[0].get("status", "closed"), dict(sent[0].get("headers", ()))


def test_a_token_is_exchanged_once_for_a_cookie_that_scripts_cannot_read():
    guard = Guard(None, 8377)
    token = guard.new_token()
    status, headers = requested(guard, f"sort=name&token={token}")
    assert (status, headers[b"location"]) == (303, b"/runs?sort=name"), "the address that is left has no token"
    cookie, *attributes = headers[b"set-cookie"].split(b"; ")
    assert {b"HttpOnly", b"SameSite=Lax"} <= set(attributes)
    assert token.encode() not in cookie
    assert requested(guard, f"token={token}")[0] == 403
    assert requested(guard, headers=[(b"cookie", cookie)])[0] == "passed on"
    assert requested(guard, f"token={guard.new_token()}")[0] == 303
    assert requested(Guard(None, 8377), headers=[(b"cookie", cookie)])[0] == 403, "another studio has another cookie"


@pytest.mark.parametrize(("kind", "method"), [("http", "HEAD"), ("http", "POST"), ("websocket", "GET")])
def test_only_a_page_that_is_opened_uses_a_token(kind, method):
    guard = Guard(None, 8377)
    token = guard.new_token()
    assert requested(guard, f"token={token}", kind=kind, method=method)[0] in (403, "closed")
    assert requested(guard, f"token={token}")[0] == 303


def test_a_token_of_another_host_or_origin_is_not_used():
    guard = Guard(None, 8377)
    token = guard.new_token()
    assert requested(guard, f"token={token}", headers=[(b"host", b"evil.example:8377")])[0] == 403
    assert requested(guard, f"token={token}", headers=[(b"origin", b"http://evil.example")])[0] == 403
    assert requested(guard, f"token={token}")[0] == 303


def test_whole_secrets_are_compared():
    guard = Guard(None, 8377)
    token = guard.new_token()
    for wrong in ("", token[:-1], token + "A", token.swapcase(), "é"):
        assert requested(guard, f"token={wrong}")[0] == 403
    cookie = requested(guard, f"token={token}")[1][b"set-cookie"].split(b";")[0]
    for wrong in (cookie[:-1], cookie + b"A", cookie.swapcase(), cookie.split(b"=")[0] + b"="):
        assert requested(guard, headers=[(b"cookie", wrong)])[0] == 403


@pytest.mark.parametrize("opens", [True, False])
def test_no_secret_is_on_the_command_line_of_the_browser(tmp_path, monkeypatch, opens):
    opened, told = [], []
    monkeypatch.setattr(serving.webbrowser, "open", lambda *command: opened.append(command))
    guard, entrance = Guard(None, 8377), tmp_path / "open.html"
    serving.write_entrance(entrance, guard)
    started = SimpleNamespace(started=True)
    serving._announce(started, guard, entrance, opens, lambda *said: told.append(said))
    assert opened == ([(entrance.as_uri(),)] if opens else [])
    assert stat.S_IMODE(entrance.stat().st_mode) == 0o600
    secrets = {*guard._tokens, guard._session}
    assert len(secrets) == 3, "of the file, of the address, of the cookie"
    assert not [secret for secret in secrets if secret in repr(opened)]
    assert not [secret for secret in secrets if secret in repr(guard)]
    assert token_in(entrance) in guard._tokens
    assert told[0][0].rpartition("=")[2] in guard._tokens - {token_in(entrance)}


def test_the_file_is_private_whatever_the_umask_is(tmp_path):
    before = os.umask(0)
    try:
        serving.write_entrance(tmp_path / "other.html", Guard(None, 8377))
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
