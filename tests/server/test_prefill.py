"""Prefill and decode apart: a server takes up the states of prompts that another one has computed."""
import contextlib
import json
import shutil
import signal
import struct
import subprocess
import threading

import httpx
import pytest

from conftest import BINARY, PATIENCE, ROOT, serving
from test_http import post, value, wait_until

KEY = "the key of the prefill server"
TOKENS = [20 + i * i % 97 for i in range(450)]
GREEDY = {"temperature": 0}
SEEDED = {"temperature": 1, "seed": 7}


@pytest.fixture(scope="module")
def dmc(tmp_path_factory):
    """A model that was trained for DMC."""
    folder = tmp_path_factory.mktemp("models") / "dmc"
    shutil.copytree(ROOT / "tests/fixtures/models/dmc-llama", folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(ROOT / "assets/base" / name, folder)
    return str(folder)


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "key"
    path.write_text(KEY + "\n")
    return str(path)


def answer(server, tokens=TOKENS, **fields):
    got = post(server, {"prompt": tokens, "max_tokens": 12, "ignore_eos": True, **fields})
    assert got.status_code == 200, got.text
    return got.json()["choices"][0]["text"], got.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


@contextlib.contextmanager
def pair(key_file, *flags, decode=(), decode_key=None, **kwargs):
    """A server that reads prompts, and one that goes on from them."""
    flags = ("--deterministic", *flags)
    with serving("--serve-states", "--api-key-file", key_file, *flags, **kwargs) as prefill, \
            serving("--prefill-from", prefill.url, "--prefill-api-key-file", decode_key or key_file, "--prefill-least", "200",
                    *flags, *decode, **kwargs) as server:
        yield prefill, server


def fetched(server):
    return {name: value(server, f"winnow_fetched_{name}_total")
            for name in ("states", "state_bytes", "state_seconds", "state_failures")}


@pytest.mark.parametrize("rule", ["dense", "dms", "dmc"])
def test_answers_are_those_of_one_server(key_file, dmc, rule):
    model = dmc if rule == "dmc" else "assets/dms-cr8"
    flags = ("--cache", rule)
    with serving("--deterministic", *flags, model=model) as alone:
        greedy, seeded = answer(alone, **GREEDY)[0], answer(alone, **SEEDED)[0]
    with pair(key_file, *flags, model=model) as (prefill, server):
        assert answer(server, **GREEDY) == (greedy, len(TOKENS) - 1)
        after = fetched(server)
        assert after["states"] == 1 and after["state_failures"] == 0 and after["state_seconds"] > 0
        # The same prompt is in memory now; a short one is computed here.
        assert answer(server, **SEEDED)[0] == seeded
        assert answer(server, TOKENS[:190], **GREEDY)[1] <= 190
        assert fetched(server) == after
        assert value_with_key(prefill, "winnow_prompt_tokens_total") == len(TOKENS)


def value_with_key(server, name):
    text = httpx.get(server.url + "/metrics", headers={"Authorization": f"Bearer {KEY}"}).text
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(name + " "))


def test_seeded_answers_and_streams(key_file):
    with serving("--deterministic") as alone:
        text = answer(alone, **SEEDED)[0]
    for stream in (False, True):
        with pair(key_file) as (_, server):
            if not stream:
                assert answer(server, **SEEDED) == (text, len(TOKENS) - 1)
                continue
            lines = post(server, {"prompt": TOKENS, "max_tokens": 12, "ignore_eos": True, "stream": True,
                                  **SEEDED}).text.splitlines()
            events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
            assert "".join(event["choices"][0]["text"] for event in events) == text
            assert fetched(server)["states"] == 1


def test_a_compressed_state_is_small(key_file):
    tokens = [20 + i * i % 997 for i in range(3000)]
    moved = {}
    for rule in ("dense", "dms"):
        with pair(key_file, "--cache", rule) as (_, server):
            assert answer(server, tokens, **GREEDY)[1] == len(tokens) - 1
            moved[rule] = fetched(server)["state_bytes"]
    assert moved["dms"] * 2 < moved["dense"]


def test_a_wrong_key_costs_a_warning(key_file, tmp_path):
    other = tmp_path / "other"
    other.write_text("another key")
    with serving("--deterministic") as alone:
        text = answer(alone, **GREEDY)[0]
    with pair(key_file, decode_key=str(other)) as (_, server):
        assert answer(server, **GREEDY) == (text, 0)
        assert fetched(server)["state_failures"] == 1
        log = server.read_log()
        assert "answered with status 401: the API key is missing or wrong" in log
        assert "another key" not in log


@pytest.mark.parametrize("flags, complaint", [
    (("--kv-dtype", "fp8"), "was saved for kv dtype"),
    (("--cache", "dense"), "was saved for cache"),
    (("--rope-context", "2048"), "was saved for model"),
])
def test_states_of_another_kind_are_not_used(key_file, flags, complaint):
    with serving("--deterministic", *flags) as alone:
        text = answer(alone, **GREEDY)[0]
    with pair(key_file, decode=flags) as (_, server):
        assert answer(server, **GREEDY) == (text, 0)
        assert complaint in server.read_log()


def test_the_prefill_server_is_killed_in_the_middle(key_file):
    tokens = [20 + i * i % 997 for i in range(3900)]
    with serving("--deterministic") as alone:
        text = answer(alone, tokens, **GREEDY)[0]
    with pair(key_file) as (prefill, server):
        got = []
        asking = threading.Thread(target=lambda: got.append(answer(server, tokens, **GREEDY)))
        asking.start()
        wait_until(lambda: value_with_key(prefill, "winnow_sequences_running") == 1)
        short = answer(server, TOKENS[:50], **GREEDY)  # does not wait for it
        assert not got and short[0]
        prefill.process.send_signal(signal.SIGKILL)
        asking.join(PATIENCE)
        assert got == [(text, 0)]
        assert fetched(server)["state_failures"] == 1
        assert "prompts are computed here" in server.read_log()
        # And while it is gone.
        assert answer(server, **GREEDY)[1] == 0


def test_a_slow_server_is_not_waited_for(key_file):
    tokens = [20 + i * i % 997 for i in range(3900)]
    with pair(key_file, decode=("--prefill-timeout", "0.1")) as (_, server):
        assert answer(server, tokens, **GREEDY)[1] == 0
        assert fetched(server)["state_failures"] == 1


def test_a_client_that_leaves_ends_the_question(key_file):
    tokens = [20 + i * i % 997 for i in range(3900)]
    with pair(key_file) as (prefill, server):
        with pytest.raises(httpx.ReadTimeout):
            post(server, {"prompt": tokens, "max_tokens": 1}, timeout=0.2)
        wait_until(lambda: value_with_key(prefill, "winnow_requests_open") == 0
                   and value(server, "winnow_requests_open") == 0)
        assert fetched(server)["state_failures"] == 0


def test_the_door(key_file):
    with serving() as closed:
        refused = post(closed, {"tokens": TOKENS}, "/v1/prefill")
        assert refused.status_code == 404 and "--serve-states" in refused.text
        assert "/v1/prefill" not in httpx.get(closed.url + "/openapi.json").json()["paths"]
    with serving("--serve-states", "--max-context", "1000", "--deterministic") as server:
        first, second = (post(server, {"tokens": TOKENS}, "/v1/prefill") for _ in range(2))
        assert first.status_code == 200
        assert first.headers["content-type"] == "application/octet-stream"
        length = struct.unpack("<Q", first.content[:8])[0]
        header = json.loads(first.content[8:8 + length])
        assert header["__metadata__"]["format"] == "winnow-state-1"
        begin, end = header["tokens"]["data_offsets"]
        tokens = first.content[8 + length + begin:8 + length + end]
        assert list(struct.unpack(f"<{len(TOKENS) - 1}i", tokens)) == TOKENS[:-1]
        # The second time it was in memory.
        assert second.content == first.content
        assert value(server, "winnow_prefix_tokens_total") == len(TOKENS) - 1
        for tokens, status in (([5], 400), ([], 400), (None, 400), ("a", 400), ([5, 10**6], 400),
                               ([5] * 1001, 400), ([5, 6], 200)):
            got = post(server, {"tokens": tokens}, "/v1/prefill")
            assert got.status_code == status, (tokens, got.text)
            assert status == 200 or "tokens" in got.text
        document = httpx.get(server.url + "/openapi.json").json()["paths"]["/v1/prefill"]["post"]
        assert "application/octet-stream" in document["responses"]["200"]["content"]


@pytest.mark.parametrize("words, complaint", [
    (("--serve-states", "--no-prefix-cache"), "--serve-states"),
    (("--serve-states", "--cache", "tova", "--cr", "4"), "under tova"),
    (("--prefill-from", "http://127.0.0.1:1", "--no-prefix-cache"), "--prefill-from"),
    (("--prefill-from", "somewhere"), "--prefill-from somewhere: expected a URL"),
    (("--prefill-from", "http://127.0.0.1:1", "--prefill-least", "0"), "--prefill-least 0"),
    (("--prefill-from", "http://127.0.0.1:1", "--prefill-timeout", "0"), "--prefill-timeout 0"),
    (("--prefill-least", "100"), "--prefill-from"),
])
def test_what_cannot_be(words, complaint):
    result = subprocess.run([BINARY, "serve", "--model", "assets/dms-cr8", "--port", "0", *words],
                            cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert result.returncode != 0
    assert complaint in result.stderr
