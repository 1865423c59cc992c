"""vLLM's and SGLang's routers before two servers: benchmarks/routers.py, small."""
import concurrent.futures
import contextlib
import json
import os
import pathlib
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
