"""Fields of requests: honoured, refused by name, or named in a header. Never dropped in silence."""
import json
import shutil

import httpx
import pytest
from conftest import ROOT, serving
from test_http import post, rendered

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "Tell me of the sea."}]


def complete(server, **fields):
    answer = post(server, {"prompt": "The sea was", "max_tokens": 12, "temperature": 0} | fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def chat(server, **fields):
    return post(server, {"messages": MESSAGES, "max_tokens": 8, "temperature": 0} | fields, CHAT)


def text(answer):
    return answer["choices"][0]["text"]


def tokens(server, text, **fields):
    return post(server, {"prompt": text, **fields}, "/tokenize").json()["tokens"]


def test_what_has_no_effect_is_named(server):
    answer = chat(server, user="me", metadata={"a": "b"}, what_is_this=1, store=None)
    assert answer.headers["x-winnow-ignored"] == "user, metadata, what_is_this" or set(
        answer.headers["x-winnow-ignored"].split(", ")) == {"user", "metadata", "what_is_this"}
    assert '"event":"ignored"' in server.read_log()
    assert "x-winnow-ignored" not in chat(server).headers
    with httpx.stream("POST", server.url + CHAT,
                      json={"messages": MESSAGES, "max_tokens": 2, "stream": True,
                            "user": "me"}) as stream:
        assert stream.headers["x-winnow-ignored"] == "user"


@pytest.mark.parametrize("path, fields, param", [
    (CHAT, {"temprature": 1}, "temprature"),
    (CHAT, {"modalities": ["text", "audio"]}, "modalities"),
    (CHAT, {"lora": [{"id": 0, "scale": 0.5}]}, "lora"),
    (CHAT, {"cache_salt": "x"}, "cache_salt"),
    (CHAT, {"sampling_params": {"temperature": 0}}, "sampling_params"),
    (CHAT, {"options": {"num_predict": 4}}, "options"),
    ("/v1/completions", {"sampling_params": {"max_new_tokens": 4}}, "sampling_params"),
    ("/v1/completions", {"options": {"temperature": 0}}, "options"),
    ("/v1/completions", {"format": "json"}, "format"),
    (CHAT, {"chat_template": "{{ 1 }}"}, "chat_template"),
    (CHAT, {"stream_options": {"include_usage": True}}, "stream_options"),
    ("/v1/completions", {"prompt_embeds": "AAAA"}, "prompt_embeds"),
    ("/v1/completions", {"suffix": "end"}, "suffix"),
    ("/v1/completions", {"allowed_token_ids": [10**6]}, "allowed_token_ids"),
    ("/v1/completions", {"stop_token_ids": [10**6]}, "stop_token_ids"),
    ("/v1/completions", {"logit_bias": {"1000000": 1}}, "logit_bias"),
])
def test_what_is_not_done_is_refused_by_name(server, path, fields, param):
    answer = post(server, {"prompt": "a", "messages": MESSAGES, "max_tokens": 2} | fields
                  if path == CHAT else {"prompt": "a", "max_tokens": 2} | fields, path)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param, answer.text


def test_a_text_has_no_use_for_fields_of_chats(server):
    answer = post(server, {"prompt": "a", "tools": [], "chat_template_kwargs": {"a": 1}}, "/tokenize")
    assert answer.headers["x-winnow-ignored"] == "chat_template_kwargs, tools" or set(
        answer.headers["x-winnow-ignored"].split(", ")) == {"tools", "chat_template_kwargs"}
    assert "chat_template_kwargs" in server.read_log()


def test_logit_bias_and_allowed_tokens(server):
    (first,) = tokens(server, " dog", add_special_tokens=False)
    assert text(complete(server, logit_bias={str(first): 100}, max_tokens=3)) == " dog dog dog"
    assert text(complete(server, logit_bias=[[" dog", 100]], max_tokens=2)) == " dog dog"
    assert text(complete(server, allowed_token_ids=[first], max_tokens=2)) == " dog dog"
    usual = complete(server, return_token_ids=True)["choices"][0]["token_ids"][0]
    assert complete(server, return_token_ids=True, logit_bias=[[usual, False]])["choices"][0][
        "token_ids"][0] != usual


def test_bad_words(server):
    plain = text(complete(server, max_tokens=60))
    word = max(plain.split(), key=plain.split().count)
    assert word not in text(complete(server, max_tokens=60, bad_words=[word])).split()


def test_stops(server):
    plain = complete(server, max_tokens=40, return_token_ids=True)["choices"][0]
    stop = plain["text"][10:14]
    kept = complete(server, max_tokens=40, stop=stop, include_stop_str_in_output=True)
    assert text(kept) == plain["text"][:plain["text"].find(stop) + len(stop)]
    later = complete(server, max_tokens=40, stop=stop, min_tokens=20)
    assert later["usage"]["completion_tokens"] >= 20
    by_id = complete(server, max_tokens=40, stop_token_ids=[plain["token_ids"][4]])
    assert by_id["choices"][0]["finish_reason"] == "stop"
    assert by_id["usage"]["completion_tokens"] == plain["token_ids"].index(
        plain["token_ids"][4]) + 1


@pytest.mark.parametrize("fields", [
    {"repeat_penalty": 1.9}, {"dry_multiplier": 5.0, "dry_base": 2.0, "dry_allowed_length": 1},
    {"temperature": 1, "seed": 3, "typical_p": 0.2}, {"temperature": 1, "seed": 3, "mirostat": 2,
                                                      "mirostat_tau": 1.0},
    {"temperature": 1, "seed": 3, "xtc_probability": 1, "xtc_threshold": 0.01}])
def test_other_ways_to_choose_tokens(server, fields):
    plain = {k: v for k, v in fields.items() if k in ("temperature", "seed")}
    changed = complete(server, max_tokens=60, **fields)
    assert text(changed) != text(complete(server, max_tokens=60, **plain))
    assert text(changed) == text(complete(server, max_tokens=60, **fields))


@pytest.mark.parametrize("name", ["max_new_tokens", "n_predict", "max_completion_tokens"])
def test_names_of_max_tokens(server, name):
    answer = complete(server, **{"max_tokens": None, name: 3})
    assert answer["usage"]["completion_tokens"] == 3


def test_best_of(server):
    answer = complete(server, n=2, best_of=6, temperature=1, seed=5, logprobs=0)
    all_six = complete(server, n=6, temperature=1, seed=5, logprobs=0)["choices"]
    def mean(choice):
        told = choice["logprobs"]["token_logprobs"]
        return sum(told) / len(told)
    best = sorted(all_six, key=mean, reverse=True)[:2]
    assert [c["text"] for c in answer["choices"]] == [c["text"] for c in best]
    assert [c["index"] for c in answer["choices"]] == [0, 1]


def test_prompts(server):
    plain = complete(server)["usage"]["prompt_tokens"]
    assert complete(server, add_special_tokens=False)["usage"]["prompt_tokens"] == plain - 1
    assert complete(server, truncate_prompt_tokens=2)["usage"]["prompt_tokens"] == 2
    long = complete(server, prompt="word " * 9000, truncate_prompt_tokens=-1)
    assert long["usage"]["total_tokens"] == 4096
    told = complete(server, prompt_logprobs=1)["choices"][0]["prompt_logprobs"]
    assert told[0] is None and len(told) == plain
    for of_token in told[1:]:
        assert 1 <= len(of_token) <= 2
        assert all(set(t) == {"logprob", "rank", "decoded_token"} for t in of_token.values())
        assert 1 in [t["rank"] for t in of_token.values()]
    assert len(chat(server, prompt_logprobs=0).json()["prompt_logprobs"]) == chat(server).json()[
        "usage"]["prompt_tokens"]


def test_top_logprobs_hold_the_chosen_token(server):
    told = complete(server, temperature=2, seed=1, logprobs=1)["choices"][0]["logprobs"]
    for token, top in zip(told["tokens"], told["top_logprobs"]):
        assert token in top and len(top) <= 2
    content = chat(server, temperature=2, seed=1, logprobs=True,
                   top_logprobs=1).json()["choices"][0]["logprobs"]["content"]
    for token in content:
        assert token["token"] in [t["token"] for t in token["top_logprobs"]]


def test_usage_in_streams(server):
    def pieces(**options):
        with httpx.stream("POST", server.url + CHAT, json={
                "messages": MESSAGES, "max_tokens": 5, "stream": True,
                "stream_options": options}) as answer:
            return [json.loads(line[6:]) for line in answer.iter_lines()
                    if line.startswith("data: {")]
    usual = pieces(include_usage=True)
    assert all(p["usage"] is None for p in usual[:-1]) and usual[-1]["usage"]
    counted = pieces(include_usage=True, continuous_usage_stats=True)
    assert [p["usage"]["completion_tokens"] for p in counted][-1] == 5
    assert all(p["usage"]["completion_tokens"] >= 1 for p in counted)
    assert all("usage" not in p for p in pieces(include_usage=False))


def test_chats_that_go_on_with_a_message(server):
    messages = MESSAGES + [{"role": "assistant", "content": "The sea"}]
    assert rendered(server, messages, continue_final_message=True).endswith("The sea")
    assert len(rendered(server, messages, add_generation_prompt=False)) < len(
        rendered(server, messages))
    answer = post(server, {"messages": messages, "continue_final_message": True, "echo": True,
                           "max_tokens": 3}, CHAT).json()
    assert answer["choices"][0]["message"]["content"].startswith("The sea")


def test_tokenize_goes_the_chats_way(server):
    assert post(server, {"model": "gpt-4", "prompt": "a"}, "/tokenize").status_code == 404
    for fields in ({"messages": MESSAGES}, {"messages": MESSAGES, "add_generation_prompt": False}):
        count = post(server, fields, "/tokenize").json()["count"]
        assert post(server, fields | {"max_tokens": 1}, CHAT).json()["usage"][
            "prompt_tokens"] == count


def with_template(tmp_path, template):
    """The demo model with another chat template."""
    source = ROOT / "assets/dms-cr8"
    for file in source.iterdir():
        if file.name != "tokenizer_config.json":
            (tmp_path / file.name).symlink_to(file)
    config = json.loads((source / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps(config | {"chat_template": template}))
    return str(tmp_path)


def test_templates(tmp_path):
    template = ("{% for m in messages %}[{{m.name}}:{{m.content}}"
                "{% for c in m.tool_calls or [] %}<{{c.function.name}} {{c.function.arguments.z}}>"
                "{% endfor %}{{m.tool_call_id}}{{m.reasoning_content}}]"
                "{% if m.content == 'raise' %}{{raise_exception('no')}}{% endif %}{% endfor %}"
                "{% for d in documents or [] %}({{d.text}}){% endfor %}")
    messages = [{"role": "user", "content": "Hi", "name": "bob"},
                {"role": "assistant", "content": None, "reasoning_content": "because",
                 "tool_calls": [{"id": "c1", "type": "function", "function": {
                     "name": "weather", "arguments": "{\"z\": 7}"}}]},
                {"role": "tool", "tool_call_id": "c1", "content": "sunny"}]
    def prompt(s, **fields):
        return rendered(s, messages, **fields)
    with serving("--trust-request-chat-template", model=with_template(tmp_path, template)) as s:
        answer = post(s, {"messages": messages, "max_tokens": 1, "chat_template_kwargs": {
            "zzz": 1, "messages": [], "documents": []}}, "/v1/chat/completions")
        assert answer.headers["x-winnow-ignored"] == (
            "chat_template_kwargs.messages, chat_template_kwargs.zzz")
        assert prompt(s, documents=[{"text": "D"}]) == (
            "[bob:Hi][:<weather 7>because][:sunnyc1](D)")
        assert prompt(s, chat_template="{{bos_token}}{{messages|length}}{{eos_token}}").count(
            "3") == 1
        refused = rendered(s, [{"role": "user", "content": "raise"}])
        assert "chat_template_error" in refused and str(tmp_path) not in refused
    shutil.rmtree(tmp_path)


def test_what_a_template_has_no_place_for(server):
    ask = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
    answer = post(server, ask | {"documents": [{"text": "b"}]}, "/v1/chat/completions")
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "documents"
    assert post(server, ask | {"documents": []}, "/v1/chat/completions").status_code == 200
    answer = post(server, ask | {"chat_template_kwargs": {"enable_thinking": False}},
                  "/v1/chat/completions")
    assert answer.headers["x-winnow-ignored"] == "chat_template_kwargs.enable_thinking"


def test_counts_say_what_a_template_has_no_place_for(server):
    for path in ("/tokenize", "/apply-template"):
        refused = post(server, {"messages": MESSAGES, "documents": [{"text": "b"}]}, path)
        assert refused.status_code == 400, path
        assert refused.json()["error"]["param"] == "documents"
        refused = post(server, {"messages": MESSAGES, "enable_thinking": True}, path)
        assert refused.status_code == 400, path
        answer = post(server, {"messages": MESSAGES, "chat_template_kwargs": {"a": 1}}, path)
        assert answer.headers["x-winnow-ignored"] == "chat_template_kwargs.a", path
    path = "/v1/messages/count_tokens"
    refused = post(server, {"messages": MESSAGES, "documents": [{"text": "b"}]}, path)
    assert refused.status_code == 400, refused.text
    answer = post(server, {"messages": MESSAGES, "chat_template_kwargs": {"a": 1}}, path)
    assert answer.headers["x-winnow-ignored"] == "chat_template_kwargs.a"


def test_only_the_template_that_is_taken_counts(tmp_path):
    templates = {"default": "{{ messages[0].content }}{{ plain }}",
                 "tool_use": "{{ messages[0].content }}{{ tools | length }}{{ tooled }}",
                 "other": "{{ documents }}{{ another }}"}
    tools = [{"type": "function", "function": {"name": "f"}}]
    kwargs = {"plain": 1, "tooled": 2, "another": 3}
    ask = {"max_tokens": 1, "chat_template_kwargs": kwargs}
    (tmp_path / "plain").mkdir()
    with serving("--tool-format", "hermes", model=with_template(tmp_path / "plain", templates)) as s:
        assert chat(s, **ask).headers["x-winnow-ignored"] == (
            "chat_template_kwargs.another, chat_template_kwargs.tooled")
        assert chat(s, tools=tools, **ask).headers["x-winnow-ignored"] == (
            "chat_template_kwargs.another, chat_template_kwargs.plain")
        assert chat(s, documents=[{"text": "b"}]).status_code == 400
    templates["rag"] = "{{ messages[0].content }}{{ documents[0].text }}"
    (tmp_path / "rag").mkdir()
    with serving("--tool-format", "hermes", model=with_template(tmp_path / "rag", templates)) as s:
        assert rendered(s, MESSAGES, documents=[{"text": "b"}]).endswith("sea.b")
        assert chat(s, documents=[{"text": "b"}]).status_code == 200
        assert chat(s, documents=[{"text": "b"}], tools=tools).status_code == 400


def test_addresses():
    with serving("--host", "localhost") as s:
        for host in ("127.0.0.1", "[::1]"):
            assert httpx.get(f"http://{host}:{s.port}/health").status_code == 200
    with serving("--host", "::1") as s:
        assert s.url == f"http://[::1]:{s.port}"
        assert httpx.get(s.url + "/health").status_code == 200


def test_http_as_the_rfcs_have_it(server):
    def head(data):
        return server.ask_raw(data).split(b"\r\n\r\n")[0]
    close = b"Host: x\r\nConnection: close\r\n\r\n"
    assert b" 200 " in head(b"GET http://127.0.0.1/health HTTP/1.1\r\n" + close)
    assert b" 400 " in head(b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n")
    refused = head(b"POST /tokenize HTTP/1.1\r\nContent-Encoding: gzip\r\n" + close)
    assert b" 415 " in refused and b"Accept-Encoding: identity" in refused
    assert b" 501 " in head(b"POST /tokenize HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n"
                            + close)
    with server.connect() as c:
        c.sendall(b"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert b"Connection: keep-alive" in c.recv(4096)


def test_samples_take_places(server):
    answer = post(server, {"prompt": ["a"] * 64, "n": 128, "max_tokens": 1})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "prompt"


def test_unknown_roles_are_named(server):
    """The demo's template takes every role but the assistant's for the user's."""
    user = {"role": "user", "content": "a"}
    for path in (CHAT, "/tokenize", "/apply-template"):
        fields = {"max_tokens": 1} if path == CHAT else {}
        for role in ("asistant", "usr", ""):
            answer = post(server, {"messages": [user, {"role": role, "content": "b"}]} | fields, path)
            error = answer.json()["error"]
            assert answer.status_code == 400 and error["param"] == "messages[1].role", answer.text
            assert f'"{role}"; expected system, developer, user, assistant, tool' in error["message"]
        for role in ("system", "developer", "assistant", "tool"):
            answer = post(server, {"messages": [user, {"role": role, "content": "b"}]} | fields, path)
            assert answer.status_code == 200, answer.text
    answer = post(server, {"input": [{"role": "usr", "content": "b"}]}, "/v1/responses")
    assert answer.status_code == 400 and '"usr"' in answer.json()["error"]["message"]


def test_roles_that_a_template_leaves_out(tmp_path):
    template = ("{% for m in messages %}{% if m.role in ['user', 'critic'] %}{{m.role}}:{{m.content}};"
                "{% endif %}{% endfor %}")
    user = {"role": "user", "content": "a"}
    with serving(model=with_template(tmp_path, template)) as s:
        assert rendered(s, [user, {"role": "critic", "content": "b"}]) == "user:a;critic:b;"
        answer = post(s, {"messages": [user, {"role": "asistant", "content": "b"}, user],
                          "max_tokens": 1}, CHAT)
        assert answer.status_code == 400 and answer.json()["error"]["param"] == "messages[1].role"
        assert "asistant" in answer.json()["error"]["message"]
    shutil.rmtree(tmp_path)
