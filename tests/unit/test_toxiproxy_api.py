"""The adapter over toxiproxy-python: it prevents the errors of that package."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import toxiproxy.api

from linkflap.harness.runtimes.toxiproxy.server import ToxiproxyApi, Unreachable


@contextmanager
def server(
    proxies: dict[str, object], *, post: int = 200, hang: threading.Event | None = None
) -> Iterator[int]:
    """An HTTP server that answers GET with `proxies`, POST with status `post`, or hangs until
    `hang` is set; yields its port."""

    class Handler(BaseHTTPRequestHandler):
        def _say(self, status: int, content: object) -> None:
            if hang is not None:
                hang.wait(30)
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            # The adapter hangs up on a server that hangs.
            with suppress(BrokenPipeError, ConnectionResetError):
                self.end_headers()
                self.wfile.write(body)

        def do_GET(self) -> None:
            self._say(200, proxies)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            created = {"name": "broker-1", "upstream": "u", "listen": "l", "enabled": True}
            self._say(post, created if post < 400 else {"error": "no such luck"})

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield http.server_port
    finally:
        if hang is not None:
            hang.set()
        http.shutdown()
        thread.join()
        http.server_close()


def proxy(*, enabled: bool) -> dict[str, object]:
    return {"broker-1": {"name": "broker-1", "upstream": "u", "listen": "l", "enabled": enabled}}


def test_two_servers_are_not_mixed_up_and_the_users_own_module_is_left_alone() -> None:
    port, transport = toxiproxy.api.APIConsumer.port, toxiproxy.api.requests
    with (
        server(proxy(enabled=True)) as first,
        server(proxy(enabled=False)) as second,
    ):
        one, two = ToxiproxyApi(first), ToxiproxyApi(second)
        assert (one.enabled("broker-1"), two.enabled("broker-1"), one.enabled("broker-1")) == (
            True,
            False,
            True,
        )
        one.close()
        two.close()
    assert (toxiproxy.api.APIConsumer.port, toxiproxy.api.requests) == (port, transport)


def test_a_closed_adapter_leaves_no_module_behind() -> None:
    before = set(sys.modules)
    ToxiproxyApi(1).close()
    assert not [name for name in set(sys.modules) - before if "toxiproxy" in name]


def test_a_server_that_hangs_is_unreachable_within_the_deadline() -> None:
    with server({}, hang=threading.Event()) as port:
        api = ToxiproxyApi(port, deadline=0.2)
        start = time.monotonic()
        with pytest.raises(Unreachable, match=r"GET .*/proxies did not return within 0\.2 s"):
            api.enabled("broker-1")
        assert time.monotonic() - start < 60
        api.close()


def test_a_server_that_is_gone_is_unreachable() -> None:
    with server({}) as port:
        pass
    api = ToxiproxyApi(port)
    with pytest.raises(Unreachable):
        api.enabled("broker-1")
    api.close()


def test_a_servers_own_failure_is_not_taken_for_success() -> None:
    with server({}, post=500) as port:
        api = ToxiproxyApi(port)
        with pytest.raises(Unreachable, match="500"):
            api.create("broker-1", listen="127.0.0.1:1", upstream="127.0.0.1:2", enabled=True)
        api.close()


def test_http_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with server(proxy(enabled=True)) as port:
        api = ToxiproxyApi(port)
        assert api.enabled("broker-1")
        api.close()
