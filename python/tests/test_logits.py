"""Logits, log-probabilities and entries against a forward pass in numpy."""

import numpy as np
import pytest
from conftest import BASE, DMS
from reference import Reference, log_softmax

import winnow


@pytest.mark.parametrize("model", [BASE, DMS], ids=["dense", "dms"])
def test_logits_are_those_of_the_reference(model, text):
    llm = winnow.LLM(model, dtype="fp32", threads=2, chunk=100)
    tokens = llm.tokenize(text)[:240]
    expected = Reference(model)(tokens)
    logits = llm.logits(tokens)
    assert logits.shape == (240, llm.info.vocab) and logits.dtype == np.float32
    assert np.abs(logits - expected.logits).max() < 1e-3
    live = llm.live_entries(tokens)
    assert live.shape == (240, llm.info.layers, llm.info.kv_heads)
    np.testing.assert_array_equal(live, expected.live)

    params = winnow.SamplingParams(max_tokens=0, logprobs=3, prompt_logprobs=True)
    (scored,) = llm.generate(tokens, params)
    scores = scored.prompt_logprobs
    assert len(scores) == 239
    rows = log_softmax(expected.logits)[:-1]
    np.testing.assert_array_equal(scores.token_ids, tokens[1:])
    np.testing.assert_allclose(scores.logprobs, rows[np.arange(239), tokens[1:]], atol=1e-3)
    best = np.sort(rows)[:, :-4:-1]
    np.testing.assert_allclose(scores.top_logprobs, best, atol=1e-3)
    np.testing.assert_allclose(np.take_along_axis(rows, scores.top_token_ids, 1), best, atol=1e-3)
    np.testing.assert_array_equal(scored.kv.live_entries, expected.live[-1])
    dense = 240 * live[0].size
    assert scored.kv.compression_ratio == pytest.approx(dense / expected.live[-1].sum())


def test_perplexity_is_that_of_the_reference(text):
    llm = winnow.LLM(BASE, dtype="fp32", threads=2)
    tokens = llm.tokenize(text)[:200]
    targets = np.arange(199), tokens[1:]
    ours = -log_softmax(llm.logits(tokens))[:-1][targets].mean()
    theirs = -log_softmax(Reference(BASE)(tokens).logits)[:-1][targets].mean()
    assert ours == pytest.approx(theirs, abs=1e-5)


def test_logprobs_of_an_answer_are_those_of_its_logits(llm, text):
    prompt = llm.tokenize(text)[:50]
    params = winnow.SamplingParams(max_tokens=6, logprobs=1, temperature=1.0, ignore_eos=True)
    (answer,) = llm.generate(prompt, params)
    rows = log_softmax(llm.logits(prompt + answer.token_ids))[49:-1]
    np.testing.assert_allclose(
        answer.logprobs.logprobs, rows[np.arange(6), answer.token_ids], atol=1e-4
    )
    assert answer.prompt_logprobs is None
