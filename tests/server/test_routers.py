"""vLLM's and SGLang's routers before two servers: benchmarks/routers.py, small."""
import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import time
import types

import httpx
import pytest
from conftest import BINARY, PATIENCE, ROOT
from test_http import wait_until

sys.path.insert(0, str(ROOT / "benchmarks"))
import routers


@pytest.mark.parametrize("router, policy", [("vllm-router", "kv_aware"), ("vllm-router", "cache_aware"),
                                            ("sglang-router", "cache_aware")])
def test_chats_find_their_server_again(tmp_path, router, policy):
    # Chats begin at once. A router that answers each before it sees the next may send all to one server.
    for _ in range(3):
        by_turns, by_cache = run_chats(tmp_path, router, policy)
        assert by_cache["turns"] == 20
        assert by_cache["hit_rate"] > max(0.8, by_turns["hit_rate"]), (by_turns, by_cache)
        if all(by_cache["prompt_tokens_by_worker"]):
            return
    pytest.fail("one server had all of it, three times")


def run_chats(tmp_path, router, policy):
    out, log = tmp_path / "out.json", tmp_path / "router.log"
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    run = subprocess.run(
        [sys.executable, "benchmarks/routers.py", "--binary", BINARY, "--chats", "5", "--turns", "4",
         "--story", "1200", "--max-tokens", "4", "--out", out, "--log", log, "--runs", f"{router}/round_robin",
         f"{router}/{policy}"],
        cwd=ROOT, env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=PATIENCE)
    if "has no ZeroMQ" in run.stderr:
        pytest.skip("no ZeroMQ in this build")
    assert run.returncode == 0, run.stderr + log.read_text()
    return json.loads(out.read_text())["runs"]


@pytest.mark.parametrize("router", ["vllm-router", "sglang-router"])
def test_a_killed_worker_ends_its_own_streams_alone(tmp_path, monkeypatch, router):
    monkeypatch.setenv("PATH", f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}")
    args = types.SimpleNamespace(model="assets/dms-cr8", log=tmp_path / "log")
    workers = [routers.Worker(BINARY, [], args.model, tells_events=False) for _ in range(2)]

    def events(port, number, told):
        body = {"model": "dms-cr8", "prompt": f"{number}. The sea was", "max_tokens": 2000, "temperature": 1,
                "ignore_eos": True, "stream": True}
        try:
            with httpx.stream("POST", f"http://127.0.0.1:{port}/v1/completions", json=body, timeout=PATIENCE) as s:
                for line in s.iter_lines():
                    told.append(line)
        except httpx.HTTPError:
            pass
        return time.monotonic()

    try:
        with routers.routing(router, "round_robin", workers, args) as port, \
                concurrent.futures.ThreadPoolExecutor() as threads:
            told = [[] for _ in range(4)]
            streams = [threads.submit(events, port, i, told[i]) for i in range(4)]
            wait_until(lambda: min(map(len, told)) > 20)
            workers[0].process.kill()
            killed = time.monotonic()
            for i in range(4):  # whatever worker it is meant for
                answer = httpx.post(f"http://127.0.0.1:{port}/v1/completions", timeout=PATIENCE,
                                    json={"model": "dms-cr8", "prompt": f"After {i}", "max_tokens": 3})
                assert answer.status_code == 200, answer.text
            ends = [stream.result() for stream in streams]
        whole = ["data: [DONE]" in lines for lines in told]
        assert sorted(whole) == [False, False, True, True]
        assert all(end - killed < 30 for end, done in zip(ends, whole) if not done)
    finally:
        for worker in workers:
            worker.process.kill()


@pytest.mark.parametrize("router", ["vllm-router", "sglang-router"])
def test_a_full_worker_is_passed_over(tmp_path, monkeypatch, router):
    monkeypatch.setenv("PATH", f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}")
    args = types.SimpleNamespace(model="assets/dms-cr8", log=tmp_path / "log")
    flags = ["--max-requests", "8", "--threads", "1"]
    workers = [routers.Worker(BINARY, flags, args.model, tells_events=False) for _ in range(2)]

    def body(tokens):
        return {"model": "dms-cr8", "prompt": "The sea was", "max_tokens": tokens, "ignore_eos": True}

    def occupy(worker):  # until the stream is closed, or eight answers of 4,000 tokens have ended
        stream = streams.enter_context(httpx.stream("POST", f"{worker.url}/v1/completions", timeout=PATIENCE,
                                                    json=body(4000) | {"n": 8, "stream": True}))
        lines = stream.iter_lines()
        next(lines)
        streams.callback(lines.close)  # a generator that nobody holds closes its stream
        assert status_from(worker.url) == 429

    def status_from(url):
        return httpx.post(f"{url}/v1/completions", timeout=PATIENCE, json=body(2)).status_code

    try:
        with routers.routing(router, "round_robin", workers, args) as port, contextlib.ExitStack() as streams:
            occupy(workers[0])
            assert [status_from(f"http://127.0.0.1:{port}") for _ in range(4)] == [200] * 4
            occupy(workers[1])
            assert status_from(f"http://127.0.0.1:{port}") == 429
            assert [status_from(worker.url) for worker in workers] == [429, 429], "an answer ended too early"
    finally:
        for worker in workers:
            worker.process.kill()


NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")


@contextlib.contextmanager
def proxied(router_port, workers, folder):
    """packaging/routers/nginx.conf, without TLS, before the router of these servers: its URL."""
    port = routers.free_port()
    text = (ROOT / "packaging/routers/nginx.conf").read_text()
    for old, new in ((r"listen 443 ssl", f"listen 127.0.0.1:{port}"), (r"\n *ssl_\w+ .*", ""),
                     (r"127\.0\.0\.1:8000", f"127.0.0.1:{router_port}"),
                     (r"( *server 127.*;\n)+", "".join(f"server {w.url.removeprefix('http://')};\n" for w in workers))):
        text, changes = re.subn(old, new, text)
        assert changes
    temporary = "".join(f"{kind}_temp_path {folder};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    config = folder / "nginx.conf"
    config.write_text(f"daemon off; pid {folder}/pid; error_log {folder}/log;\n"
                      f"events {{}}\nhttp {{ access_log off;\n{temporary}{text}}}\n")
    process = subprocess.Popen([NGINX, "-c", config, "-e", folder / "log"])
    try:
        wait_until(lambda: takes_connections(port))
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def takes_connections(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def ask_as_it_is(url, method, path):
    """The status of a request whose path no client library has put in order."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as s:
        s.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        return int(s.recv(65536).split()[1])


@pytest.mark.skipif(not NGINX, reason="there is no nginx")
@pytest.mark.parametrize("router, flags, change, from_inside", [
    ("vllm-router", ["--api-key", "secret"], "POST /remove_worker?url={}", 200),  # the router itself takes it from anyone
    ("sglang-router", ["--control-plane-api-keys", "a:a:admin:other"], "POST /workers", 401)])
def test_the_proxy_passes_the_api_alone(tmp_path, monkeypatch, router, flags, change, from_inside):
    monkeypatch.setenv("PATH", f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}")
    command = routers.router_command
    monkeypatch.setattr(routers, "router_command", lambda *args: command(*args) + flags)
    args = types.SimpleNamespace(model="assets/dms-cr8", log=tmp_path / "log")
    worker = routers.Worker(BINARY, ["--api-key", "secret"], args.model, tells_events=False)
    method, path = change.format(worker.url).split()
    key = {"Authorization": "Bearer secret"}
    chat = {"model": "dms-cr8", "messages": [{"role": "user", "content": "x"}], "max_tokens": 4}
    try:
        with routers.routing(router, "round_robin", [worker], args) as port, proxied(port, [worker], tmp_path) as url:
            for form in (path, f"/{path}", f"/v1/..{path}", f"/v1/models/..%2F..{path}", f"{path}/..%2Fv1%2Fmodels",
                         f"{path}/../v1/models", "/v1/tokenizers", "/list_workers", "/flush_cache", "/add_worker", "/key"):
                assert ask_as_it_is(url, method, form) == 404, form
            assert httpx.get(f"{url}/readiness").status_code == 200
            assert httpx.get(f"{url}/v1/models?x=1", headers=key).status_code == 200
            for api in ("/v1/chat/completions", "/v1/messages"):
                lacks = router == "sglang-router" and api == "/v1/messages"
                assert httpx.post(url + api, json=chat).status_code == 401, api
                assert httpx.post(url + api, json=chat, headers=key).status_code == (404 if lacks else 200), api
            long = {"model": "dms-cr8", "prompt": "x" * (2 << 20), "max_tokens": 1}
            assert httpx.post(f"{url}/v1/completions", json=long, headers=key).status_code == 400  # the server's, no 413
            stream = chat | {"max_tokens": 2500, "ignore_eos": True, "temperature": 1, "stream": True}
            with httpx.stream("POST", f"{url}/v1/chat/completions", json=stream, headers=key) as answer:
                lines = answer.iter_lines()
                next(lines)  # while the server still writes: nothing collects a stream
                assert "winnow_sequences_running 1\n" in httpx.get(f"{worker.url}/metrics", headers=key).text
                assert "data: [DONE]" in lines
            assert ask_as_it_is(f"http://127.0.0.1:{port}", method, path) == from_inside
    finally:
        worker.process.kill()
