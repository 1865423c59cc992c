"""vLLM's and SGLang's routers before two servers: benchmarks/routers.py, small."""
import json
import os
import pathlib
import subprocess
import sys

import pytest
from conftest import BINARY, PATIENCE, ROOT


@pytest.mark.parametrize("router, policy", [("vllm-router", "kv_aware"), ("vllm-router", "cache_aware"),
                                            ("sglang-router", "cache_aware")])
def test_chats_find_their_server_again(tmp_path, router, policy):
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
    by_turns, by_cache = json.loads(out.read_text())["runs"]
    assert by_cache["turns"] == 20
    assert by_cache["hit_rate"] > max(0.8, by_turns["hit_rate"]), (by_turns, by_cache)
    assert all(by_cache["prompt_tokens_by_worker"]), "one server had all of it"
