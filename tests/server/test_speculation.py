"""Drafts: the same answers, whoever asks for them, and what /metrics counts of them."""
import pytest
from conftest import ROOT, serving
from test_http import metrics, post, wait_until

SMALL = str(ROOT / "assets" / "dms-cr8")  # a model agrees with itself
SENTENCE = "The sea was calm, and the ships lay quiet in the harbour until the morning. "
BODY = {"prompt": 4 * SENTENCE, "max_tokens": 40, "ignore_eos": True, "seed": 4}


@pytest.fixture(scope="module", params=[("--speculate", "lookup"), ("--draft-model", SMALL)],
                ids=["lookup", "model"])
def drafting(request):
    with serving("--deterministic", *request.param) as server:
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


def test_metrics_of_a_draft_model():
    with serving("--draft-model", SMALL, "--kv-gib", "0.5", "--metrics-names", "vllm", "--model-name", "m") as server:
        post(server, BODY | {"temperature": 0})
        wait_until(lambda: counts(server)[1] >= 20)
        told = metrics(server)
        labels = (("engine", "0"), ("model_name", "m"))
        for name, own in (("drafts", "drafts"), ("draft_tokens", "drafted_tokens"),
                          ("accepted_tokens", "accepted_tokens")):
            assert told[f"vllm:spec_decode_num_{name}_total", labels] == told[f"winnow_{own}_total", ()] > 0
        both = told["winnow_draft_kv_capacity_bytes", ()] + told["winnow_kv_capacity_bytes", ()]
        assert told["winnow_draft_kv_capacity_bytes", ()] == pytest.approx(2 ** 27, rel=0.01)
        assert both == pytest.approx(2 ** 29, rel=0.01)
        assert 0 < told["winnow_draft_kv_bytes", ()] <= told["winnow_draft_kv_capacity_bytes", ()]
        assert told["winnow_engine_seconds_total", (("part", "draft"),)] > 0


def test_a_request_may_ask_for_drafts(server):
    before = counts(server)
    post(server, BODY | {"temperature": 0})
    assert counts(server) == before
    assert post(server, BODY | {"temperature": 0, "winnow_draft_tokens": 4}).status_code == 200
    wait_until(lambda: counts(server)[0] > before[0])
    refused = post(server, BODY | {"winnow_draft_tokens": 16})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "winnow_draft_tokens"
