"""Anthropic's Messages API, asked by its client."""
import json

import anthropic
import httpx
import jsonschema
import pytest
from conftest import MODEL, serving
from test_fields import with_template
from test_http import post
from test_reasoning import TEMPLATE
from test_tools import CITY

USER = [{"role": "user", "content": "How is the weather in Rome?"}]
GREEDY = {"temperature": 0}
TOOLS = [{"name": "weather", "description": "The weather.", "input_schema": CITY}]


@pytest.fixture(scope="module")
def claude(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)


def test_a_message(claude):
    message = claude.messages.create(model=MODEL, max_tokens=8, messages=USER, system="Be brief.",
                                     extra_body=GREEDY)
    assert message.role == "assistant" and message.type == "message"
    assert message.content[0].type == "text" and message.content[0].text
    assert message.stop_reason == "max_tokens" and message.usage.output_tokens == 8
    count = claude.messages.count_tokens(model=MODEL, messages=USER, system="Be brief.")
    usage = message.usage
    assert count.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


def test_a_stop_sequence_is_told(claude):
    fields = dict(model=MODEL, max_tokens=40, messages=USER, extra_body=GREEDY)
    text = claude.messages.create(**fields).content[0].text
    stop = text[len(text) // 2:][:3]
    message = claude.messages.create(stop_sequences=["no such", stop], **fields)
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", stop)
    assert "".join(block.text for block in message.content) == text[:text.index(stop)]


def test_a_stream_tells_the_same(claude):
    fields = dict(model=MODEL, max_tokens=20, messages=USER, extra_body=GREEDY)
    whole = claude.messages.create(**fields)
    with claude.messages.stream(**fields) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    assert final.content[0].text == whole.content[0].text
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"


def test_tools_are_called(claude):
    fields = dict(model=MODEL, max_tokens=300, messages=USER, tools=TOOLS, extra_body=GREEDY,
                  tool_choice={"type": "tool", "name": "weather"})
    message = claude.messages.create(**fields)
    (call,) = [block for block in message.content if block.type == "tool_use"]
    assert message.stop_reason == "tool_use" and call.name == "weather"
    jsonschema.validate(call.input, CITY)
    with claude.messages.stream(**fields) as stream:
        final = stream.get_final_message()
    assert final.content[-1].input == call.input and final.stop_reason == "tool_use"
    more = USER + [{"role": "assistant", "content": [
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": call.id, "name": "weather", "input": call.input}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"},
            {"type": "text", "text": "And now?", "cache_control": {"type": "ephemeral"}}]}]
    assert claude.messages.create(model=MODEL, max_tokens=4, messages=more).content


def test_structured_output(claude):
    message = claude.messages.create(
        model=MODEL, max_tokens=300, messages=USER,
        extra_body=GREEDY | {"output_config": {"format": {"type": "json_schema", "schema": CITY}}})
    jsonschema.validate(json.loads(message.content[0].text), CITY)


def test_thinking(tmp_path):
    model = with_template(tmp_path, TEMPLATE)
    with serving("--reasoning-format", "think", "--model-name", MODEL, model=model) as s:
        claude = anthropic.Anthropic(base_url=s.url, api_key="none", max_retries=0)
        fields = dict(model=MODEL, max_tokens=1100, messages=USER, extra_body=GREEDY,
                      stop_sequences=["."], thinking={"type": "enabled", "budget_tokens": 1024})
        small = post(s, {"model": MODEL, "max_tokens": 60, "messages": USER, "temperature": 0,
                         "thinking": {"type": "enabled", "budget_tokens": 6}}, "/v1/messages")
        assert [block["type"] for block in small.json()["content"]] == ["thinking", "text"]
        off = claude.messages.create(**fields | {"thinking": {"type": "disabled"}})
        assert [block.type for block in off.content] == ["text"]


@pytest.mark.parametrize("fields, word", [
    ({"max_tokens": None}, "max_tokens"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
     "messages[0].content[0].type"),
    ({"messages": [{"role": "robot", "content": "a"}]}, "messages[0].role"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
    ({"system": [{"type": "image"}]}, "system[0].type"),
    ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools[0].name"),
    ({"tools": [{"name": "a", "input_schema": 5}]}, "tools[0].input_schema"),
    ({"tools": [{"name": "a", "input_schema": {}}], "tool_choice": {"type": "tool", "name": "b"}}, "tool_choice.name"),
    ({"tool_choice": {"type": "sometimes"}}, "tool_choice.type"),
    ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
    ({"thinking": {"type": "on"}}, "thinking.type"),
    ({"thinking": {"type": 5}}, "thinking.type"),
    ({"tool_choice": {"type": 5}}, "tool_choice.type"),
    ({"temperature": "hot"}, "temperature"),
    ({"stop_sequences": [str(i) for i in range(17)]}, "stop_sequences"),
    ({"output_config": "json"}, "output_config"),
    ({"output_config": {"format": {"type": "json_schema", "schema": {"$ref": "#/nowhere"}}}},
     "output_config.format.schema"),
])
def test_what_is_wrong_is_named(server, fields, word):
    answer = post(server, {"messages": USER, "max_tokens": 3} | fields, "/v1/messages")
    assert answer.status_code == 400, answer.text
    error = answer.json()
    assert error["type"] == "error" and error["error"]["type"] == "invalid_request_error"
    assert word in error["error"]["message"].replace(":", " ").split()


def test_an_answer_goes_on_with_the_last_message(server):
    begun = USER + [{"role": "assistant", "content": "Once upon"}]
    fields = {"max_tokens": 6, "temperature": 0}
    answer = post(server, fields | {"messages": begun}, "/v1/messages").json()
    chat = post(server, fields | {"messages": begun, "continue_final_message": True},
                "/v1/chat/completions").json()
    assert answer["content"][0]["text"] == chat["choices"][0]["message"]["content"]
    counted = post(server, {"messages": begun}, "/v1/messages/count_tokens").json()
    assert counted["input_tokens"] == answer["usage"]["input_tokens"] + (
        answer["usage"]["cache_read_input_tokens"])


def test_fields_of_chats_are_honoured(server):
    ask = {"messages": USER, "max_tokens": 6, "temperature": 0}
    biased = post(server, ask | {"logit_bias": {"5": 100}}, "/v1/messages")
    assert "x-winnow-ignored" not in biased.headers
    assert biased.json()["content"] != post(server, ask, "/v1/messages").json()["content"]
    for fields, word in (({"n": 2}, "n"), ({"winnow_votes": {"chains": 2}}, "winnow_votes"),
                         ({"min_p": 2}, "min_p"), ({"samplers": ["top_k"]}, "samplers")):
        answer = post(server, ask | fields, "/v1/messages")
        assert answer.status_code == 400 and answer.json()["error"]["message"].startswith(word)
    assert post(server, ask | {"n": 1}, "/v1/messages").status_code == 200


def test_documents(server):
    def count(**fields):
        block = {"type": "document", "source": {"type": "text", "media_type": "text/plain",
                                                "data": "The sea is blue."}} | fields
        return post(server, {"messages": [{"role": "user", "content": [block]}]},
                    "/v1/messages/count_tokens")
    assert count(title="Of the sea").json()["input_tokens"] > count().json()["input_tokens"]
    refused = count(citations={"enabled": True})
    assert refused.status_code == 400
    assert "messages[0].content[0].citations" in refused.json()["error"]["message"]


def test_errors_are_anthropics(claude, server):
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.create(model="claude", max_tokens=3, messages=USER)
    answer = post(server, {"messages": USER, "max_tokens": 1, "metadata": {"user_id": "a"},
                           "thinking": {"type": "enabled", "budget_tokens": 1024}}, "/v1/messages")
    assert answer.headers["x-winnow-ignored"] == "metadata, thinking" or (
        answer.headers["x-winnow-ignored"] == "thinking, metadata"), answer.headers
    assert [m.id for m in claude.models.list()] == [MODEL]


def test_keys(tmp_path):
    with serving("--api-key", "secret") as s:
        good = anthropic.Anthropic(base_url=s.url, api_key="secret", max_retries=0)
        assert good.messages.create(model=MODEL, max_tokens=1, messages=USER).content
        bad = anthropic.Anthropic(base_url=s.url, api_key="wrong", max_retries=0)
        with pytest.raises(anthropic.AuthenticationError):
            bad.messages.create(model=MODEL, max_tokens=1, messages=USER)


def test_every_error_is_in_anthropics_words(server):
    for path, method, fields in (
            ("/v1/messages", "GET", {}),
            ("/v1/messages", "POST", {"content": b"{}", "headers": {"Content-Type": "text/plain"}}),
            ("/v1/messages/count_tokens", "POST", {"json": {}}),
            ("/v1/messages", "POST", {"json": {"max_tokens": 1}})):
        answer = httpx.request(method, server.url + path, **fields)
        assert answer.status_code >= 400 and answer.json()["type"] == "error", answer.text
        assert set(answer.json()["error"]) == {"type", "message"}


@pytest.fixture(scope="module")
def locked():
    with serving("--api-key", "secret", "--max-body-mib", "1") as s:
        yield s


@pytest.mark.parametrize("path, headers, body, status, kind", [
    ("/v1/messages", {"x-api-key": "wrong"}, b"{}", 401, "authentication_error"),
    ("/v1/messages/batches", {"x-api-key": "wrong"}, b"{}", 401, "authentication_error"),
    ("/v1/messages", {"x-api-key": "secret"}, b" " * 2_000_000, 413, "request_too_large"),
    ("/v1/messages/batches", {"x-api-key": "secret"}, b"{}", 404, "not_found_error"),
])
def test_refusals_before_the_body_are_in_anthropics_words(locked, path, headers, body, status, kind):
    answer = httpx.post(locked.url + path, content=body,
                        headers={"content-type": "application/json"} | headers)
    assert answer.status_code == status, answer.text
    assert answer.json()["type"] == "error"
    assert set(answer.json()["error"]) == {"type", "message"}
    assert answer.json()["error"]["type"] == kind
    assert (answer.headers.get("www-authenticate") == "Bearer") == (status == 401)


def test_a_coding_that_is_not_known_is_refused_in_anthropics_words(server):
    answer = server.ask_raw(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\n"
                            b"Transfer-Encoding: gzip\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 501 ")
    error = json.loads(answer.split(b"\r\n\r\n", 1)[1])
    assert error["type"] == "error" and error["error"]["type"] == "api_error"


def test_others_keep_openais_words(locked):
    answer = httpx.post(locked.url + "/v1/messagesx", content=b"{}")
    assert answer.status_code == 401 and answer.json()["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize("fields, name", [
    ({"tools": [{"name": "weather"}]}, "tools[0].input_schema"),
    ({"messages": USER + [{"role": "assistant", "content": [
        {"type": "tool_use", "id": "t", "name": "weather", "input": "{}"}]}]},
     "messages[1].content[0].input"),
])
def test_calls_and_tools_have_their_objects(server, fields, name):
    answer = post(server, {"max_tokens": 1, "messages": USER} | fields, "/v1/messages")
    assert answer.status_code == 400 and name in answer.json()["error"]["message"], answer.text
