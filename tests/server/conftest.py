"""A winnow server on the demo model, and what tests ask it with."""
import contextlib
import functools
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile

import httpx
import openai
import pytest

# A machine may be busy with other tests: nothing here is about speed, and nobody gives up early.
PATIENCE = 300.0


def patiently(name):
    """httpx.NAME of one client that all tests share: making one takes as long as ten requests. No connection is
    kept, as with a client for each request."""
    of_its_own = functools.partial(getattr(httpx, name), timeout=PATIENCE)
    shared = getattr(CLIENT, name)
    return lambda *args, **kwargs: (of_its_own if "verify" in kwargs else shared)(*args, **kwargs)


CLIENT = httpx.Client(timeout=PATIENCE, limits=httpx.Limits(max_keepalive_connections=0))
for name in ("get", "post", "request", "stream"):
    setattr(httpx, name, patiently(name))

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("WINNOW_BINARY", str(ROOT / "build/release/bin/winnow"))
MODEL = "dms-cr8"


class Server:
    """A running `winnow serve`."""

    def __init__(self, *flags, model="assets/dms-cr8", preexec_fn=None, log=None):
        self.log = log or tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen(
            [BINARY, "serve", "--model", model, "--port", "0", "--threads", "2",
             *([] if "--log-level" in flags else ["--log-level", "debug"]), *flags],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=self.log, text=True, preexec_fn=preexec_fn)
        line = self.process.stdout.readline()
        assert "serves on" in line, self.read_log()
        self.url = re.search(r"https?://\S+", line).group()
        self.port = int(self.url.rsplit(":", 1)[1])

    def read_log(self):
        log = self.log.fileno()  # not read(): the server writes where this file's position is
        return os.pread(log, os.fstat(log).st_size, 0).decode()

    def connect(self, timeout=PATIENCE):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def ask_raw(self, data, timeout=PATIENCE):
        """Sends bytes, returns what comes back until the server closes."""
        with self.connect(timeout) as s:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR) if not data else None
            return read_all(s)

    def stop(self, sig=signal.SIGTERM, timeout=PATIENCE):
        if self.process.poll() is None:
            self.process.send_signal(sig)
        return self.process.wait(timeout)


def logged(server, event):
    lines = server.read_log().rpartition("\n")[0].splitlines()  # but for one that is being written
    return [line for line in map(json.loads, lines) if line["event"] == event]


def read_all(s):
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while data := s.recv(65536):
            parts.append(data)
    return b"".join(parts)


@contextlib.contextmanager
def serving(*flags, **kwargs):
    server = Server(*flags, **kwargs)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()


@pytest.fixture(scope="session")
def server():
    with serving("--shutdown-timeout", "5", "--header-timeout", "3") as s:
        yield s
        assert s.stop() == 0, s.read_log()


@pytest.fixture(scope="session")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
