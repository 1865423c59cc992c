"""The official openai package against the server: answers, streams, errors."""
import asyncio
import json
import math

import httpx
import openai
import pytest

from conftest import MODEL, serving

PROMPT = ("It was a dark and stormy night, and the captain of the ship went below to his cabin, "
          "and the men stood on the deck and looked at the sea")


def complete(client, **kwargs):
    kwargs = {"model": MODEL, "prompt": PROMPT, "max_tokens": 12, "temperature": 0} | kwargs
    return client.completions.create(**kwargs)


def chat(client, content="Tell me of the sea.", **kwargs):
    kwargs = {"model": MODEL, "max_tokens": 12, "temperature": 0} | kwargs
    return client.chat.completions.create(
        messages=[{"role": "user", "content": content}], **kwargs)


def prompt_tokens(client, messages):
    return client.chat.completions.create(model=MODEL, messages=messages,
                                          max_tokens=1).usage.prompt_tokens


def test_models(client):
    models = client.models.list().data
    assert [m.id for m in models] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4")


def test_completion(client):
    answer = complete(client)
    assert answer.object == "text_completion" and answer.model == MODEL
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 12
    winnow = answer.model_extra["winnow"]
    assert winnow["kv_bytes"] > 0 and winnow["live_entries"] > 0
    assert winnow["compression_ratio"] >= 1.0


def test_stream_is_the_whole(client):
    whole = complete(client, max_tokens=40).choices[0].text
    pieces = list(complete(client, max_tokens=40, stream=True))
    assert "".join(p.choices[0].text for p in pieces) == whole
    assert [p.choices[0].finish_reason for p in pieces][-1] == "length"
    assert all(p.choices[0].finish_reason is None for p in pieces[:-1])
    assert all(p.usage is None for p in pieces)


def test_tokens_that_wait_are_sent_together():
    with serving("--stream-interval", "1000", "--deterministic") as server:
        with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
            asked = {"max_tokens": 60, "logprobs": 1, "extra_body": {"return_token_ids": True}}
            whole = complete(client, **asked).choices[0]
            pieces = [p.choices[0] for p in complete(client, stream=True, **asked)]
            assert len(pieces) < 20
            assert len(pieces[0].logprobs.tokens) == 1  # the first one does not wait
            assert "".join(p.text for p in pieces) == whole.text
            for field in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
                told = [value for p in pieces if p.logprobs for value in getattr(p.logprobs, field)]
                assert told == getattr(whole.logprobs, field)
            assert [t for p in pieces for t in p.model_extra.get("token_ids", [])] == \
                whole.model_extra["token_ids"]
            assert [p.finish_reason for p in pieces] == [None] * (len(pieces) - 1) + ["length"]
            two = [p.choices[0] for p in complete(client, n=2, temperature=1, seed=3, stream=True)]
            both = complete(client, n=2, temperature=1, seed=3).choices
            for choice in both:
                assert "".join(p.text for p in two if p.index == choice.index) == choice.text


def test_tokens_that_wait_come_before_an_error():
    texts = []
    for interval in "0", "1000":
        with serving("--stream-interval", interval, "--deterministic", "--kv-gib", "0.001") as server:
            with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
                texts.append("")
                with pytest.raises(openai.APIError, match="does not fit"):
                    for piece in complete(client, max_tokens=3000, stream=True,
                                          extra_body={"ignore_eos": True}):
                        texts[-1] += piece.choices[0].text
    assert len(texts[0]) > 1000 and texts[0] == texts[1]


def test_chat_and_its_stream(client):
    whole = chat(client, max_tokens=30)
    assert whole.choices[0].message.role == "assistant"
    pieces = list(chat(client, max_tokens=30, stream=True,
                       stream_options={"include_usage": True}))
    assert pieces[0].choices[0].delta.role == "assistant"
    text = "".join(p.choices[0].delta.content or "" for p in pieces if p.choices)
    assert text == whole.choices[0].message.content
    assert pieces[-1].choices == [] and pieces[-1].usage == whole.usage
    assert pieces[-1].model_extra["winnow"]["kv_bytes"] > 0


def test_content_parts_are_joined(client):
    parts = [{"type": "text", "text": "Tell me "}, {"type": "text", "text": "of the sea."}]
    assert chat(client, parts).choices[0].message.content == chat(client).choices[0].message.content


def test_async(server):
    async def ask_all():
        client = openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
        async def ask(i):
            return (await client.completions.create(
                model=MODEL, prompt=f"{PROMPT} number {i % 4}", max_tokens=16, temperature=0)
            ).choices[0].text
        return await asyncio.gather(*(ask(i) for i in range(24)))
    answers = asyncio.run(ask_all())
    for i in range(4, 24):
        assert answers[i] == answers[i % 4]


def test_samples_differ_and_seeds_repeat(client):
    def draw(seed):
        choices = complete(client, n=4, temperature=1.0, seed=seed).choices
        assert [c.index for c in choices] == [0, 1, 2, 3]
        return [c.text for c in choices]
    assert draw(5) == draw(5)
    assert draw(5) != draw(6)
    assert len(set(draw(5))) > 1


def test_several_prompts(client):
    answer = complete(client, prompt=[PROMPT, "Once upon a time", PROMPT], n=2)
    assert [c.index for c in answer.choices] == list(range(6))
    texts = [c.text for c in answer.choices]
    assert texts[0] == texts[1] == texts[4] and texts[0] != texts[2]
    assert texts[2] == complete(client, prompt="Once upon a time").choices[0].text


def test_token_prompts(client, server):
    import httpx
    tokens = httpx.post(server.url + "/tokenize", json={"prompt": PROMPT}).json()["tokens"]
    assert complete(client, prompt=tokens).choices[0].text == complete(client).choices[0].text
    back = httpx.post(server.url + "/detokenize", json={"tokens": tokens}).json()["prompt"]
    assert back.endswith(PROMPT)


def test_stop_strings(client):
    whole = complete(client, max_tokens=40).choices[0].text
    stop = whole[len(whole) // 2:][:4]
    stopped = complete(client, max_tokens=40, stop=["never to be seen", stop])
    assert stopped.choices[0].text == whole[:whole.index(stop)]
    assert stopped.choices[0].finish_reason == "stop"
    assert stopped.usage.completion_tokens < 40
    streamed = "".join(p.choices[0].text
                       for p in complete(client, max_tokens=40, stop=stop, stream=True))
    assert streamed == stopped.choices[0].text


def test_logprobs(client):
    answer = complete(client, logprobs=3).choices[0]
    logprobs = answer.logprobs
    assert "".join(logprobs.tokens) == answer.text
    assert len(logprobs.token_logprobs) == 12
    for token, logprob, top, offset in zip(logprobs.tokens, logprobs.token_logprobs,
                                           logprobs.top_logprobs, logprobs.text_offset):
        assert len(top) == 3 and max(top.values()) == logprob == top[token]
        assert sum(map(math.exp, top.values())) <= 1.0001
        assert answer.text[offset:].startswith(token)
    content = chat(client, logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert len(content) == 12 and all(len(t.top_logprobs) == 2 for t in content)
    assert all(bytes(t.bytes).decode() == t.token for t in content)


def test_echo_scores_the_prompt(client):
    plain = complete(client, logprobs=1, max_tokens=1)
    echoed = complete(client, logprobs=1, max_tokens=1, echo=True)
    choice = echoed.choices[0]
    assert choice.text == PROMPT + plain.choices[0].text
    tokens = choice.logprobs.tokens
    assert len(tokens) == echoed.usage.total_tokens
    assert choice.logprobs.token_logprobs[0] is None
    assert all(p < 0 for p in choice.logprobs.token_logprobs[1:])
    assert choice.logprobs.token_logprobs[-1] == pytest.approx(
        plain.choices[0].logprobs.token_logprobs[0], abs=1e-2)
    only = complete(client, logprobs=1, max_tokens=0, echo=True)
    assert only.choices[0].text == PROMPT
    assert only.choices[0].logprobs.token_logprobs == choice.logprobs.token_logprobs[:-1]
    # Scored one token at a time, the prompt is as likely.
    words = complete(client, prompt=PROMPT + plain.choices[0].text, echo=True, logprobs=0,
                     max_tokens=0).choices[0].logprobs
    assert words.token_logprobs[-1] == pytest.approx(choice.logprobs.token_logprobs[-1], abs=1e-2)


def test_penalties(client):
    plain = complete(client, max_tokens=60).choices[0].text
    assert complete(client, max_tokens=60, presence_penalty=2.0).choices[0].text != plain
    assert complete(client, max_tokens=60, frequency_penalty=2.0).choices[0].text != plain
    assert complete(client, max_tokens=60,
                    extra_body={"repetition_penalty": 1.5}).choices[0].text != plain
    assert complete(client, max_tokens=60, temperature=1.0,
                    extra_body={"top_k": 1}).choices[0].text == plain
    assert complete(client, max_tokens=60, temperature=1.0, top_p=0).choices[0].text == plain


def test_prefixes_are_reused(client):
    text = " ".join(f"On day {i} the ship sailed on." for i in range(120))
    first = complete(client, prompt=text + " The")
    again = complete(client, prompt=text + " A")
    third = complete(client, prompt=text + " A")
    cached = [a.usage.prompt_tokens_details.cached_tokens for a in (first, again, third)]
    assert cached[0] == 0 and cached[1] > first.usage.prompt_tokens / 2
    assert cached[2] == third.usage.prompt_tokens - 1
    assert again.choices[0].text == third.choices[0].text


def test_an_answer_can_be_continued(client):
    messages = [{"role": "user", "content": PROMPT}]
    first = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=40,
                                           temperature=0)
    messages += [{"role": "assistant", "content": first.choices[0].message.content},
                 {"role": "user", "content": "Go on."}]
    second = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=4,
                                            temperature=0)
    assert (second.usage.prompt_tokens_details.cached_tokens
            >= first.usage.prompt_tokens)


@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_is_taken_as_it_was_generated(client, streamed):
    """Token ids that come with an answer and are handed back with it are the next prompt's."""
    options = {"model": MODEL, "temperature": 1.0, "max_tokens": 60,
               "extra_body": {"return_token_ids": True}}
    messages = [{"role": "user", "content": PROMPT}]
    other_spellings = 0
    for turn in range(5):
        if streamed:
            message = {"role": "assistant", "content": "", "token_ids": []}
            for piece in client.chat.completions.create(
                    messages=messages, seed=turn, stream=True,
                    stream_options={"include_usage": True}, **options):
                for choice in piece.choices:
                    message["content"] += choice.delta.content or ""
                    message["token_ids"] += (choice.delta.model_extra or {}).get("token_ids", [])
            usage, ids = piece.usage, message["token_ids"]
        else:
            answer = client.chat.completions.create(messages=messages, seed=turn, **options)
            message = answer.choices[0].message  # as a conversation is usually carried on
            usage, ids = answer.usage, message.model_extra["token_ids"]
        if turn > 0:
            assert usage.prompt_tokens_details.cached_tokens >= known
        known = usage.prompt_tokens + len(ids) - 1  # nobody had to compute the last one
        messages += [message, {"role": "user", "content": "Go on."}]
        other_spellings += prompt_tokens(client, messages) != prompt_tokens(
            client, [{"role": m["role"], "content": m["content"]} for m in map(dict, messages)])
    assert other_spellings > 0


def test_token_ids_that_spell_something_else_are_not_taken(client):
    messages = [{"role": "user", "content": PROMPT},
                {"role": "assistant", "content": "The sea."},
                {"role": "user", "content": "Go on."}]
    ask = lambda: client.chat.completions.create(model=MODEL, messages=messages, max_tokens=20,
                                                 temperature=0)
    plain = ask()
    messages[1]["token_ids"] = [5, 6, 7]
    other = ask()
    assert other.choices[0].message.content == plain.choices[0].message.content
    assert other.usage.prompt_tokens == plain.usage.prompt_tokens
    messages[1]["token_ids"] = [-1]
    with pytest.raises(openai.BadRequestError) as caught:
        ask()
    assert caught.value.body["param"] == "messages[1].token_ids"


def test_completions_tell_token_ids(client, server):
    answer = complete(client, max_tokens=20, extra_body={"return_token_ids": True}).choices[0]
    ids = answer.model_extra["token_ids"]
    assert len(ids) == 20
    text = httpx.post(server.url + "/detokenize", json={"tokens": ids}).json()["prompt"]
    assert text == answer.text
    assert "token_ids" not in complete(client).choices[0].model_extra


def test_trace_tells_what_is_held(client):
    text = "The code is 5521. " + PROMPT * 6
    stream = client.completions.create(
        model=MODEL, prompt=text, stream=True, max_tokens=20, temperature=0,
        stream_options={"include_usage": True}, extra_body={"winnow_trace": True,
                                                            "ignore_eos": True})
    position, kept, live = 0, [], None
    for piece in stream:
        trace = (piece.model_extra or {}).get("winnow_trace")
        if trace:
            assert trace["position"] == position
            position += trace["tokens"]
            kept += trace["kept"]
            live = trace["live"]
        usage = piece.usage
        winnow = (piece.model_extra or {}).get("winnow") or {}
    heads = 8 * 2
    assert len(live) == heads and len(kept) == position
    # What was archived and the window of 64 + 1 make up what is held.
    for head in range(heads):
        archived = sum(int(mask, 16) >> head & 1 for mask in kept)
        assert archived + 65 == live[head]
    assert sum(live) == winnow["live_entries"]
    assert position == usage.total_tokens - 1  # the last token was not fed back


@pytest.mark.parametrize("fields, param", [
    ({"temperature": -1}, "temperature"),
    ({"temperature": 1e9}, "temperature"),
    ({"top_p": 1.5}, "top_p"),
    ({"n": 0}, "n"),
    ({"n": 100000}, "n"),
    ({"max_tokens": -5}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"logprobs": 1000}, "logprobs"),
    ({"stop": ["a"] * 100}, "stop"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [1, "a"]}, "prompt"),
    ({"prompt": [-1]}, "prompt"),
    ({"prompt": [10**9]}, "prompt"),
    ({"prompt": [8191999]}, "prompt"),
    ({"logit_bias": {"5": 1000}}, "logit_bias"),
    ({"n": 3, "best_of": 2}, "best_of"),
    ({"suffix": "x"}, "suffix"),
])
def test_bad_fields_are_named(client, fields, param):
    with pytest.raises(openai.BadRequestError) as caught:
        complete(client, **fields)
    assert caught.value.body["param"] == param
    assert caught.value.body["type"] == "invalid_request_error"


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "n_predict"])
def test_an_answer_beyond_the_context_names_its_limit(client, name):
    with pytest.raises(openai.BadRequestError) as caught:
        complete(client, max_tokens=openai.NOT_GIVEN, extra_body={name: 100000})
    assert caught.value.code == "context_length_exceeded"
    assert caught.value.body["param"] == name


def test_other_errors(client):
    with pytest.raises(openai.NotFoundError) as caught:
        complete(client, model="gpt-4")
    assert caught.value.code == "model_not_found"
    assert "started with --model-alias gpt-4, " in caught.value.message
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt-4")
    assert "started with --model-alias gpt-4, " in caught.value.message
    with pytest.raises(openai.BadRequestError) as caught:
        complete(client, prompt="word " * 10000)
    assert caught.value.code == "context_length_exceeded"
    assert caught.value.body["param"] == "prompt"
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "http://x"}}]}])
    assert caught.value.body["param"] == "messages[0].content[0].type"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"prompt": "\xff"}',
                                  b'{"prompt":"a","prompt":"b"}', b"[" * 100000, b'{"prompt": 5}'])
def test_malformed_bodies(server, body):
    import httpx
    for path in ("/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"):
        answer = httpx.post(server.url + path, content=body,
                            headers={"content-type": "application/json"})
        assert answer.status_code == 400, (path, answer.text)
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
        json.dumps(answer.json())


@pytest.mark.parametrize("temperature", [0, 1, 2])
def test_json_object(client, temperature):
    """A model that knows no JSON says nothing else."""
    cut = 0
    for seed in range(6):
        answer = chat(client, "Answer with a JSON object.", max_tokens=300, seed=seed, n=2,
                      temperature=temperature, response_format={"type": "json_object"})
        for choice in answer.choices:
            if choice.finish_reason == "length":
                cut += 1
                assert choice.message.content.startswith("{")
            else:
                assert isinstance(json.loads(choice.message.content), dict)
    assert cut < 12 or temperature == 0
    with pytest.raises(openai.BadRequestError):
        chat(client, response_format={"type": "json_schema", "json_schema": {}})
