"""Requests and settings that the cache or the connections cannot hold."""
import pytest

from conftest import logged, serving
from test_http import metrics, post, wait_until


def outcomes(server):
    return {dict(labels)["outcome"]: count for (name, labels), count in metrics(server).items()
            if name == "winnow_requests_total"}


@pytest.mark.parametrize("stream", [False, True])
def test_a_sequence_that_the_cache_cannot_hold_is_the_clients_error(stream):
    with serving("--cache", "dense", "--kv-gib", "0.001") as s:
        answer = post(s, {"prompt": "The sea was calm. " * 300, "max_tokens": 5, "stream": stream})
        assert answer.status_code == (200 if stream else 400)
        assert "context_length_exceeded" in answer.text
        wait_until(lambda: outcomes(s)["refused"] == 1)
        assert outcomes(s)["failed"] == 0  # an alert counts these


@pytest.mark.parametrize("flags, warns", [
    (("--cache", "dense", "--kv-gib", "0.004"), True),
    (("--cache", "dense", "--kv-gib", "0.004", "--max-context", "500"), False),
    (("--kv-gib", "0.004"), False),  # compressed as in training it fits
    (("--kv-gib", "0.001"), True),
    (("--cache", "snapkv", "--cr", "2", "--kv-gib", "0.001"), False),  # not known beforehand
])
def test_a_context_that_the_cache_cannot_hold_is_told_at_start(flags, warns):
    with serving(*flags) as s:
        messages = [line["message"] for line in logged(s, "capacity")]
        assert len(messages) == warns
        assert not warns or "--max-context" in messages[0] and "--kv-gib" in messages[0]


@pytest.mark.parametrize("connections, warns", [("7", True), ("8", False)])
def test_connections_that_requests_take_up_are_told_at_start(connections, warns):
    with serving("--max-requests", "7", "--max-connections", connections) as s:
        messages = [line["message"] for line in logged(s, "limits")]
        assert len(messages) == warns
        assert not warns or "--max-connections 7" in messages[0] and "--max-requests 7" in messages[0]
