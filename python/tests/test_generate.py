"""Prompts in, completions out."""

import numpy as np
import pytest
from conftest import BASE, FIXTURES

import winnow
from winnow import SamplingParams

PROMPT = "It was a dark and stormy night, and the captain of the ship"


def test_info_names_the_run(llm):
    info = llm.info
    assert (info.family, info.cache, info.window, info.kv_dtype) == ("llama", "dms", 64, "bf16")
    assert (info.layers, info.kv_heads, info.vocab) == (8, 2, 8192)
    assert winnow.LLM(BASE, cache="h2o", cr=2, threads=2).info.cache == "h2o"


def test_one_prompt_or_many_as_text_or_tokens(llm):
    params = SamplingParams(max_tokens=8, ignore_eos=True)
    (one,) = llm.generate(PROMPT, params)
    assert one.finish_reason == "length" and len(one.token_ids) == 8
    assert one.text == llm.detokenize(one.token_ids)
    tokens = llm.tokenize(PROMPT)
    assert one.prompt_tokens == len(tokens)
    assert llm.generate(tokens, params)[0].token_ids == one.token_ids
    assert llm.generate(np.array(tokens), params)[0].token_ids == one.token_ids
    many = llm.generate([PROMPT, tokens, "The sea"], params)
    assert [each.prompt_index for each in many] == [0, 1, 2]
    assert many[0].token_ids == many[1].token_ids == one.token_ids
    assert llm.generate([], params) == []


def test_each_prompt_may_have_its_own_params(llm):
    short, long = llm.generate(
        [PROMPT, PROMPT],
        [SamplingParams(max_tokens=2, ignore_eos=True), SamplingParams(max_tokens=9, ignore_eos=True)],
    )
    assert (len(short.token_ids), len(long.token_ids)) == (2, 9)
    with pytest.raises(winnow.Error, match="2 SamplingParams"):
        llm.generate([PROMPT], [SamplingParams(), SamplingParams()])


def test_a_batch_says_what_each_says_alone(llm, text):
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    prompts = [text[:300], text[100:900], text[500:560]]
    together = [each.token_ids for each in llm.generate(prompts, params)]
    assert together == [llm.generate(prompt, params)[0].token_ids for prompt in prompts]


def test_samples_of_one_prompt(llm):
    params = SamplingParams(max_tokens=8, n=3, temperature=1.0, seed=5, ignore_eos=True)
    samples = llm.generate([PROMPT, PROMPT], params)
    assert [(each.prompt_index, each.sample) for each in samples] == [
        (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)
    ]
    assert len({tuple(each.token_ids) for each in samples}) == 3  # the seed is the same
    other = llm.generate(PROMPT, SamplingParams(max_tokens=8, temperature=1.0, seed=6, ignore_eos=True))
    assert other[0].token_ids != samples[0].token_ids


def test_stop_strings_end_the_text(llm):
    whole = llm.generate(PROMPT, SamplingParams(max_tokens=40, ignore_eos=True))[0]
    stop = whole.text[len(whole.text) // 2 :][:4]
    params = SamplingParams(max_tokens=40, stop=stop, ignore_eos=True)
    (stopped, *_), (both,) = llm.generate([PROMPT, PROMPT], params), llm.generate(PROMPT, params)
    assert stopped.finish_reason == "stop" and stopped.text == both.text
    assert stopped.text == whole.text[: whole.text.index(stop)]
    assert len(stopped.token_ids) < 40


def test_cache_statistics_are_arrays(llm, text):
    (answer,) = llm.generate(text[:2000], SamplingParams(max_tokens=4, ignore_eos=True))
    kv = answer.kv
    assert kv.live_entries.shape == (8, 2) and kv.live_entries.dtype == np.int32
    length = answer.prompt_tokens + 3  # the last token was chosen, not fed
    assert kv.compression_ratio == pytest.approx(16 * length / kv.live_entries.sum())
    assert 1 < kv.compression_ratio and kv.bytes < kv.dense_bytes
    assert llm.cache_memory().bytes == 0 < llm.cache_memory().capacity


def test_chat_goes_through_the_models_template(llm):
    messages = [{"role": "user", "content": "Who are you?"}]
    assert llm.render_chat(messages) == "<|begin_of_text|><|user|>Who are you?<|assistant|>"
    assert llm.chat_prompt(messages)[:2] == [0, 2]  # one BOS, not two
    params = SamplingParams(max_tokens=5, ignore_eos=True)
    (answer,) = llm.chat(messages, params)
    assert answer.token_ids == llm.generate(llm.chat_prompt(messages), params)[0].token_ids
    with pytest.raises(winnow.Error, match="message 1: .*content"):
        llm.render_chat([*messages, {"role": "user"}])
    with pytest.raises(winnow.Error, match="chat template"):
        winnow.LLM(FIXTURES / "llama", dtype="fp32").render_chat(messages)


def test_prompts_that_make_no_sense(llm):
    with pytest.raises(winnow.Error, match="prompt is empty"):
        llm.generate(np.array([], dtype=np.int32))
    with pytest.raises(winnow.Error, match="vocabulary"):
        llm.generate([8192])
    with pytest.raises(winnow.Error, match="not within any vocabulary"):
        llm.generate([2**40])
    for wrong in (np.ones((2, 2), int), np.ones(3), {"a": 1}):
        with pytest.raises(winnow.Error, match="token ids"):
            llm.logits(wrong)
    with pytest.raises(winnow.Error, match="positions"):
        llm.generate(PROMPT, SamplingParams(max_tokens=10**6))


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"max_tokens": 0}, "max tokens"),
        ({"n": 0}, "--n"),
        ({"temperature": -1.0}, "temperature"),
        ({"top_p": 2.0}, "top"),
        ({"seed": -1}, "seed"),
        ({"logprobs": -2}, "logprobs"),
        ({"prompt_logprobs": True}, "log-prob"),
        ({"stop": ""}, "--stop"),
    ],
)
def test_params_that_make_no_sense(llm, params, named):
    with pytest.raises(winnow.Error, match=named) as caught:
        llm.generate(PROMPT, SamplingParams(**params))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"model": "nowhere"}, "nowhere"),
        ({"cache": "magic"}, "magic"),
        ({"cache": "tova"}, "--cr"),
        ({"kv_dtype": "int3"}, "int3"),
        ({"device": "tpu"}, "tpu"),
        ({"weights": "int1"}, "int1"),
    ],
)
def test_loads_that_make_no_sense(options, named):
    with pytest.raises(winnow.Error, match=named) as caught:
        winnow.LLM(**{"model": BASE, **options})
    assert "\n" not in str(caught.value)


def test_errors_are_runtime_errors():
    assert issubclass(winnow.Error, RuntimeError)
    assert winnow.Error.__module__ == "winnow"
