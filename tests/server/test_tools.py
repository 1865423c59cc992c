"""Tools: offered, called, enforced, streamed."""
import json

import jsonschema
import openai
import pytest
from conftest import MODEL, serving
from test_http import post, rendered

CHAT = "/v1/chat/completions"
CITY = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]},
                                         "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather.",
                                           "parameters": CITY}},
         {"type": "function", "function": {"name": "stop_clock",
                                           "parameters": {"type": "object", "properties": {}}}}]
USER = [{"role": "user", "content": "How is the weather in Rome?"}]


def ask(server, **fields):
    answer = post(server, {"messages": USER, "tools": TOOLS, "max_tokens": 300,
                           "temperature": 1} | fields, CHAT)
    assert answer.status_code == 200, answer.text
    return answer.json()


def check(call):
    assert call["type"] == "function" and call["id"].startswith("call_")
    arguments = json.loads(call["function"]["arguments"])
    if call["function"]["name"] == "weather":
        jsonschema.validate(arguments, CITY)
    else:
        assert call["function"]["name"] == "stop_clock" and arguments == {}


@pytest.mark.parametrize("seed", range(4))
def test_required_calls_are_valid(server, seed):
    choice = ask(server, tool_choice="required", parallel_tool_calls=False, seed=seed)["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    check(call)


def streamed(server, **fields):
    """The contents and the arguments that a stream tells."""
    answer = post(server, {"messages": USER, "tools": TOOLS, "stream": True} | fields, CHAT)
    events = [line.removeprefix("data: ") for line in answer.text.split("\n\n")
              if line.startswith("data: {")]
    deltas = [choice["delta"] for event in events for choice in json.loads(event)["choices"]]
    return ("".join(delta.get("content") or "" for delta in deltas),
            "".join(call["function"].get("arguments", "")
                    for delta in deltas for call in delta.get("tool_calls", ())))


def test_a_cut_call_leaves_no_mark_in_the_content(server):
    fields = {"tool_choice": "required", "parallel_tool_calls": False, "temperature": 0}
    whole = ask(server, **fields)["usage"]["completion_tokens"]
    for most in range(1, whole + 1):
        message = ask(server, max_tokens=most, **fields)["choices"][0]["message"]
        told = "".join(call["function"]["arguments"] for call in message.get("tool_calls", ()))
        assert not message["content"], most
        assert streamed(server, max_tokens=most, **fields) == ("", told), most


def test_a_named_tool_is_called(server):
    for name in ("weather", "stop_clock"):
        message = ask(server, tool_choice={"type": "function", "function": {"name": name}})[
            "choices"][0]["message"]
        assert [c["function"]["name"] for c in message["tool_calls"]] == [name]
        check(message["tool_calls"][0])


def test_of_allowed_tools_alone_one_is_called(server):
    def allowed(mode, name):
        return {"type": "allowed_tools", "allowed_tools": {
            "mode": mode, "tools": [{"type": "function", "function": {"name": name}}]}}
    for name in ("weather", "stop_clock"):
        message = ask(server, tool_choice=allowed("required", name))["choices"][0]["message"]
        assert {c["function"]["name"] for c in message["tool_calls"]} == {name}
    # The model may not begin another call, however much it would like to.
    token = post(server, {"prompt": "<tool_call>", "add_special_tokens": False},
                 "/tokenize").json()["tokens"][0]
    message = ask(server, tool_choice=allowed("auto", "stop_clock"), max_tokens=60,
                  n=8, logit_bias={str(token): 5}, seed=1)
    for choice in message["choices"]:
        for call in choice["message"].get("tool_calls") or []:
            assert call["function"]["name"] == "stop_clock"


@pytest.mark.parametrize("interval", ["0", "1000"])  # tokens one by one, or several calls at once
def test_streams_tell_the_same_calls(interval):
    with serving("--stream-interval", interval, "--deterministic") as server:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
        check_streamed_calls(client)


def check_streamed_calls(client):
    fields = {"model": MODEL, "messages": USER, "tools": TOOLS, "tool_choice": "required",
              "max_tokens": 300, "temperature": 1, "seed": 5}
    whole = client.chat.completions.create(**fields).choices[0]
    calls, reasons = {}, []
    for piece in client.chat.completions.create(stream=True, **fields):
        for choice in piece.choices:
            reasons += [choice.finish_reason] if choice.finish_reason else []
            told = [delta.index for delta in choice.delta.tool_calls or []]
            assert len(told) == len(set(told)), piece  # some clients read one entry of a call
            for delta in choice.delta.tool_calls or []:
                if delta.function.name:
                    calls[delta.index] = [delta.function.name, ""]
                calls[delta.index][1] += delta.function.arguments or ""
    assert reasons == [whole.finish_reason]
    assert [calls[i] for i in sorted(calls)] == [
        [c.function.name, c.function.arguments] for c in whole.message.tool_calls]


def test_without_a_call_the_answer_is_text(server):
    message = ask(server, temperature=0, max_tokens=8)["choices"][0]["message"]
    assert message["content"] and "tool_calls" not in message
    plain = post(server, {"messages": USER, "max_tokens": 8, "temperature": 0}, CHAT).json()
    none = ask(server, tool_choice="none", temperature=0, max_tokens=8)
    assert none["choices"][0]["message"]["content"] == plain["choices"][0]["message"]["content"]
    assert none["usage"]["prompt_tokens"] == plain["usage"]["prompt_tokens"]
    assert ask(server, max_tokens=1)["usage"]["prompt_tokens"] > plain["usage"]["prompt_tokens"]


def test_strict_tools_hold_calls_to_their_parameters(server):
    tools = json.loads(json.dumps(TOOLS))
    tools[0]["function"]["strict"] = True
    for choice in ask(server, tools=tools, n=4, seed=2)["choices"]:
        for call in choice["message"].get("tool_calls", []):
            check(call)


def test_earlier_calls_reach_the_prompt(server):
    call = {"id": "c1", "type": "function",
            "function": {"name": "weather", "arguments": "{\"city\": \"Rome\"}"}}
    def tokens(calls):
        messages = USER + [{"role": "assistant", "content": "", "tool_calls": calls},
                           {"role": "tool", "tool_call_id": "c1", "content": "sunny"}]
        return rendered(server, messages)
    assert '"weather"' in tokens([call]) and '"weather"' not in tokens([])


@pytest.mark.parametrize("fields, param", [
    ({"tool_choice": "required", "tools": None}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "no"}}}, "tool_choice.function.name"),
    ({"tool_choice": {"type": "function", "name": "weather"}}, "tool_choice.function"),
    ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [
        {"type": "function", "function": {"name": "no"}}]}}},
     "tool_choice.allowed_tools.tools[0].function.name"),
    ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "any"}}},
     "tool_choice.allowed_tools.mode"),
    ({"tool_choice": "sometimes"}, "tool_choice"),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"tools": [{"type": "retrieval", "function": {"name": "f"}}]}, "tools[0].type"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
    ({"tools": TOOLS + TOOLS}, "tools"),
    ({"tool_choice": "required", "guided_regex": "a"}, "tool_choice"),
    ({"tool_choice": "required", "tools": [{"type": "function", "function": {
        "name": "f", "parameters": {"not": {}}}}]}, "tools"),
    ({"functions": [{"name": "f"}]}, "functions"),
])
def test_what_is_wrong_with_tools_is_named(server, fields, param):
    answer = post(server, {"messages": USER, "tools": TOOLS} | fields, CHAT)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param, answer.text


@pytest.mark.parametrize("stop, finish", [('"city"', "stop"), ("</tool_call>", "tool_calls")])
def test_a_call_that_a_stop_string_cuts_is_no_end_with_calls(server, stop, finish):
    """Whoever reads "tool_calls" goes on to parse their arguments."""
    (choice,) = ask(server, tool_choice={"type": "function", "function": {"name": "weather"}},
                    stop=stop)["choices"]
    assert choice["finish_reason"] == finish and choice["stop_reason"] == stop
    assert len(choice["message"]["tool_calls"]) == 1
