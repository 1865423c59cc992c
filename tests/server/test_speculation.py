"""Drafts: the same answers, whoever asks for them, and what /metrics counts of them."""
import pytest
from conftest import serving
from test_http import metrics, post, wait_until

SENTENCE = "The sea was calm, and the ships lay quiet in the harbour until the morning. "
BODY = {"prompt": 4 * SENTENCE, "max_tokens": 40, "ignore_eos": True, "seed": 4}


@pytest.fixture(scope="module")
def drafting():
    with serving("--deterministic", "--speculate", "lookup") as server:
        yield server


def counts(server):
    values = metrics(server)
    return [values[f"winnow_{what}_tokens_total", ()] for what in ("drafted", "accepted")]


@pytest.mark.parametrize("fields", [
    {"temperature": 0}, {"temperature": 0.5, "n": 3}, {"temperature": 0, "stop": " quiet"},
    {"temperature": 0, "logprobs": 2}, {"temperature": 0.7, "dry_multiplier": 0.1},
    {"temperature": 0, "frequency_penalty": 0.02, "repetition_penalty": 1.01},
    {"temperature": 0.7, "mirostat": 2},
    {"temperature": 0, "guided_regex": "(The sea was calm, and the ships lay (quiet|low)[ a-z.]*)+"}])
def test_answers_are_the_same(drafting, fields):
    before = counts(drafting)
    plain = post(drafting, BODY | fields | {"winnow_draft_tokens": 0})
    assert counts(drafting) == before
    drafted = post(drafting, BODY | fields)
    assert plain.status_code == drafted.status_code == 200
    assert drafted.json()["choices"] == plain.json()["choices"]
    # A stop string is found after the step that wrote it: entries may be those of its other tokens.
    if "stop" not in fields:
        assert drafted.json()["usage"] == plain.json()["usage"]
    wait_until(lambda: counts(drafting)[0] > before[0])  # the engine reports when it has time
    after = counts(drafting)
    assert after[1] - before[1] <= after[0] - before[0]


def test_drafts_are_right_where_a_text_repeats_itself(drafting):
    accepted = counts(drafting)[1]
    repeats = {"guided_regex": f"({SENTENCE.replace('.', '[.]')})+", "winnow_draft_tokens": 15}
    answer = post(drafting, BODY | {"temperature": 0} | repeats)
    assert SENTENCE.startswith(answer.json()["choices"][0]["text"][:len(SENTENCE)])
    wait_until(lambda: counts(drafting)[1] >= accepted + 15)


def test_a_request_may_ask_for_drafts(server):
    before = counts(server)
    post(server, BODY | {"temperature": 0})
    assert counts(server) == before
    assert post(server, BODY | {"temperature": 0, "winnow_draft_tokens": 4}).status_code == 200
    wait_until(lambda: counts(server)[0] > before[0])
    refused = post(server, BODY | {"winnow_draft_tokens": 16})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "winnow_draft_tokens"
