"""A server all of whose connections are taken: probes still see it, others are told."""
import contextlib
import select
import socket

import httpx

from conftest import logged, serving
from test_http import post, request_bytes, value, wait_until


@contextlib.contextmanager
def full(*flags):
    """A server whose connections are all taken by requests that are on their way, and these."""
    with serving("--max-connections", "3", "--body-timeout", "600", *flags) as s:
        taken = [s.connect() for _ in range(3)]
        for connection in taken:
            connection.sendall(request_bytes({"prompt": "The sea"})[:-1])
        # A question gets a connection that is closed after it only where none is free.
        wait_until(lambda: httpx.get(s.url + "/health").headers.get("connection") == "close")
        try:
            yield s, taken
        finally:
            for connection in taken:
                connection.close()


def test_a_full_server_answers_probes_and_tells_others():
    refused = "winnow_connections_refused_total"
    with full() as (s, taken):
        for path in ("/health", "/ready", "/ping"):
            answer = httpx.get(s.url + path)
            assert answer.status_code == 200 and answer.headers["connection"] == "close"
        wait_until(lambda: value(s, "winnow_http_connections") == 4)
        assert value(s, refused) == 0
        for _ in range(2):
            answer = post(s, {"prompt": "The sea", "max_tokens": 3})
            assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
            assert answer.json()["error"]["code"] == "too_many_connections"
        assert value(s, refused) == 2
        warnings = logged(s, "http")
        assert [line["message"] for line in warnings] == [
            "connections refused: 1; 3 are open (--max-connections)"]
        taken[0].close()
        wait_until(lambda: post(s, {"prompt": "The sea", "max_tokens": 3}).status_code == 200)


def test_a_full_server_has_no_place_for_crowds_and_slow_heads():
    with full("--header-timeout", "3600") as (s, taken):
        crowd = [s.connect() for _ in range(80)]
        wait_until(lambda: b"" in [peek(c) for c in crowd])  # those beyond the spare ones
        for c in crowd:
            with contextlib.suppress(OSError):
                c.sendall(b"GET /hea")
        wait_until(lambda: all(peek(c) == b"" for c in crowd))  # long before --header-timeout
        assert httpx.get(s.url + "/health").status_code == 200
        assert value(s, "winnow_connections_refused_total") >= 80 - 64
        assert [peek(connection) for connection in taken] == [None] * 3
        for c in crowd:
            c.close()


def peek(connection):
    """What comes without a wait: b"" once the server has closed, None while there is nothing."""
    if not select.select([connection], [], [], 0)[0]:
        return None
    try:
        return connection.recv(1, socket.MSG_PEEK)
    except ConnectionError:
        return b""
