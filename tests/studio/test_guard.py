"""Who may talk to the page: without a browser, request by request."""

import http.client
import re

import pytest

from pgfl.studio.guard import NO_TOKEN, WRONG_HOST, WRONG_ORIGIN, Guard
from tests.studio.browser import open_page

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
    status, _, headers = ask(server, f"/runs?sort=name&token={server.token}")
    assert status == 303
    assert headers["location"] == "/runs?sort=name"  # the address that is left has no token
    assert {"HttpOnly", "SameSite=Lax"} <= set(headers["set-cookie"].split("; "))
    return headers["set-cookie"].split(";")[0]


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
        assert ask(server, f"/?token={server.token}", Host=host)[0] == 403
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
    page.goto(f"{other}/?token={server.token}")
    tried = page.evaluate(
        """async ([url, socket]) => {
          const read = await fetch(url, {credentials: 'include'}).then(r => r.status, () => 'refused');
          const ws = await new Promise(done => { const s = new WebSocket(socket);
            s.onopen = () => done('open'); s.onerror = () => done('refused'); });
          return [read, ws]; }""",
        [f"{server.base}/runs", server.base.replace("http", "ws") + SOCKET],
    )
    assert tried == ["refused", "refused"]


def test_the_guard_compares_whole_tokens():
    guard = Guard(None, "secret", 1)
    assert guard._is("secret")
    assert not any(guard._is(wrong) for wrong in ("", "secre", "secret2", "SECRET", "é"))
