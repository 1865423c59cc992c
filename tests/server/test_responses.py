"""OpenAI's Responses API, asked by its client."""
import json

import httpx
import jsonschema
import openai
import pytest
from conftest import MODEL, serving
from pydantic import BaseModel, Field
from test_fields import with_template
from test_http import post
from test_reasoning import TEMPLATE
from test_tools import CITY

ASK = {"model": MODEL, "input": "How is the weather in Rome?", "temperature": 0,
       "max_output_tokens": 12}
TOOLS = [{"type": "function", "name": "weather", "parameters": CITY}]


def test_a_response(client):
    response = client.responses.create(instructions="Be brief.", metadata={"a": "b"}, **ASK)
    assert response.id.startswith("resp_") and response.object == "response"
    assert response.output_text and response.output[0].role == "assistant"
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage.output_tokens == 12 and response.metadata == {"a": "b"}
    chat = client.chat.completions.create(
        model=MODEL, max_tokens=12, temperature=0,
        messages=[{"role": "system", "content": "Be brief."},
                  {"role": "user", "content": ASK["input"]}])
    assert chat.choices[0].message.content == response.output_text


def test_a_stream_tells_the_same(client):
    whole = client.responses.create(**ASK)
    with client.responses.stream(**ASK) as stream:
        events = list(stream)
    final = events[-1].response
    assert final.output_text == whole.output_text and final.status == whole.status
    assert final.usage.output_tokens == whole.usage.output_tokens
    numbers = [event.sequence_number for event in events]
    assert numbers == sorted(set(numbers))
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert "response.output_text.done" in kinds and kinds[-1] == "response.incomplete"


def told_and_final(server, **fields):
    """The items of a stream as each was told, and as the response at its end has them."""
    answer = post(server, {"stream": True} | fields, "/v1/responses")
    assert answer.status_code == 200, answer.text
    events = [json.loads(line[6:]) for line in answer.text.split("\n") if line.startswith("data: ")]
    told = [e["item"] for e in events if e["type"] == "response.output_item.done"]
    return told, events[-1]["response"]["output"], events


def test_streamed_items_are_those_of_the_response(server):
    for fields in ({}, {"max_output_tokens": 300, "tools": TOOLS, "tool_choice": "required"},
                   {"max_output_tokens": 9, "tools": TOOLS, "tool_choice": "required"}):
        told, final, _ = told_and_final(server, **ASK | fields)
        assert told == final, fields
    assert told[-1]["status"] == "incomplete"


def test_log_probabilities_are_streamed(server):
    fields = ASK | {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    whole = post(server, fields, "/v1/responses").json()["output"][0]["content"][0]
    told, final, events = told_and_final(server, **fields)
    deltas = [e for e in events if e["type"] == "response.output_text.delta"]
    assert len(whole["logprobs"]) == 12 and len(whole["logprobs"][0]["top_logprobs"]) >= 2
    assert [x["token"] for e in deltas for x in e["logprobs"]] == [
        x["token"] for x in whole["logprobs"]]
    assert told[0]["content"][0]["logprobs"] == final[0]["content"][0]["logprobs"]
    assert len(final[0]["content"][0]["logprobs"]) == 12


def test_a_response_goes_on_with_another(client, server):
    first = client.responses.create(**ASK)
    second = client.responses.create(**ASK | {"input": "And now?"}, previous_response_id=first.id)
    chat = client.chat.completions.create(
        model=MODEL, max_tokens=12, temperature=0,
        messages=[{"role": "user", "content": ASK["input"]},
                  {"role": "assistant", "content": first.output_text},
                  {"role": "user", "content": "And now?"}])
    assert second.output_text == chat.choices[0].message.content
    assert client.responses.retrieve(first.id).output_text == first.output_text
    (item,) = client.responses.input_items.list(second.id).data
    assert item.type == "message" and [part.text for part in item.content] == ["And now?"]
    client.responses.delete(first.id)
    for call in (lambda: client.responses.retrieve(first.id),
                 lambda: client.responses.create(**ASK, previous_response_id=first.id)):
        with pytest.raises(openai.NotFoundError):
            call()
    unkept = client.responses.create(**ASK, store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(unkept.id)


def test_tools_are_called(client):
    fields = ASK | {"max_output_tokens": 300, "tools": TOOLS, "tool_choice": "required",
                    "parallel_tool_calls": False}
    response = client.responses.create(**fields)
    (call,) = [item for item in response.output if item.type == "function_call"]
    jsonschema.validate(json.loads(call.arguments), CITY)
    with client.responses.stream(**fields) as stream:
        final = stream.get_final_response()
    assert [(c.name, c.arguments) for c in final.output if c.type == "function_call"] == [
        (call.name, call.arguments)]
    more = client.responses.create(
        **ASK | {"input": [{"type": "function_call_output", "call_id": call.call_id,
                            "output": "sunny"}]}, previous_response_id=response.id)
    assert more.output
    listed = [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}, call.model_dump(),
              {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}]
    assert client.responses.create(**ASK | {"input": listed}).output


def test_structured_output(client):
    class Person(BaseModel):
        name: str = Field(max_length=9)
        age: int = Field(ge=0, le=120)

    parsed = client.responses.parse(text_format=Person, **ASK | {"max_output_tokens": 400})
    assert parsed.status == "completed" and isinstance(parsed.output_parsed, Person)
    response = client.responses.create(
        text={"format": {"type": "json_schema", "name": "c", "schema": CITY}},
        **ASK | {"max_output_tokens": 300})
    jsonschema.validate(json.loads(response.output_text), CITY)


def test_reasoning(tmp_path):
    model = with_template(tmp_path, TEMPLATE)
    with serving("--reasoning-format", "think", "--model-name", MODEL, model=model) as s:
        client = openai.OpenAI(base_url=s.url + "/v1", api_key="none", max_retries=0)
        off = client.responses.create(reasoning={"effort": "none"}, **ASK)
        assert [item.type for item in off.output] == ["message"]
        thought = client.responses.create(extra_body={"thinking_token_budget": 3},
                                          **ASK | {"max_output_tokens": 40})
        assert [item.type for item in thought.output] == ["reasoning", "message"]
        assert thought.output[0].content[0].text
        with client.responses.stream(**ASK) as stream:
            kinds = [event.type for event in stream]
        assert "response.reasoning_text.delta" in kinds


def told_of(item):
    """All but the numbers: what the cache holds already rounds them differently."""
    part = item["content"][0]
    return (item["type"], item["status"], part["text"],
            [score["token"] for score in part.get("logprobs", [])])


def test_whole_and_streamed_items_are_the_same(tmp_path):
    logprobs = {"include": ["message.output_text.logprobs"]}
    tools = {"tools": TOOLS, "tool_choice": "auto"}
    with serving("--reasoning-format", "think", "--model-name", MODEL,
                 model=with_template(tmp_path, TEMPLATE)) as s:
        for fields, expected in (
                ({}, [("reasoning", "incomplete")]),
                ({"thinking_token_budget": 3, "max_output_tokens": 40},
                 [("reasoning", "completed"), ("message", "incomplete")]),
                ({"thinking_token_budget": 3, "max_output_tokens": 40} | tools,
                 [("reasoning", "completed"), ("message", "incomplete")]),
                ({"reasoning": {"effort": "none"}}, [("message", "incomplete")])):
            whole = post(s, ASK | logprobs | fields, "/v1/responses").json()["output"]
            _, streamed, _ = told_and_final(s, **ASK | logprobs | fields)
            assert [(item["type"], item["status"]) for item in whole] == expected, fields
            assert [told_of(item) for item in whole] == [told_of(item) for item in streamed]
            for item in whole:
                if item["type"] == "message":
                    part = item["content"][0]
                    told = "".join(x["token"] for x in part["logprobs"])
                    # The first token may begin with blanks that no text has.
                    assert told.lstrip() == part["text"].lstrip(), fields


def test_calls_have_no_logprobs(server):
    fields = ASK | {"include": ["message.output_text.logprobs"], "tools": TOOLS,
                    "tool_choice": "required", "parallel_tool_calls": False,
                    "max_output_tokens": 300}
    _, streamed, _ = told_and_final(server, **fields)
    whole = post(server, fields, "/v1/responses").json()["output"]
    for output in (whole, streamed):
        assert [(item["type"], item["status"]) for item in output] == [
            ("function_call", "completed")]


def test_fields_of_chats_are_honoured(server):
    plain = post(server, ASK, "/v1/responses").json()["output"][0]["content"][0]["text"]
    stop = plain[4:7]
    stopped = post(server, ASK | {"stop": [stop], "presence_penalty": 0.0}, "/v1/responses")
    assert "x-winnow-ignored" not in stopped.headers
    assert stopped.json()["output"][0]["content"][0]["text"] == plain[:plain.index(stop)]


def test_some_tools_are_allowed(client):
    tools = TOOLS + [{"type": "function", "name": "add", "parameters": CITY}]
    response = client.responses.create(
        **ASK | {"max_output_tokens": 300}, tools=tools, parallel_tool_calls=False,
        tool_choice={"type": "allowed_tools", "mode": "required",
                     "tools": [{"type": "function", "name": "add"}]})
    assert [call.name for call in response.output if call.type == "function_call"] == ["add"]


@pytest.mark.parametrize("fields, param", [
    ({"input": None}, "input"),
    ({"n": 2}, "n"),
    ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [
        {"type": "function", "name": "a"}]}}, "tool_choice.tools[0].name"),
    ({"input": []}, "input"),
    ({"input": [{"type": "computer_call"}]}, "input[0].type"),
    ({"input": [{"type": "function_call_output", "output": "a"}]}, "input[0].call_id"),
    ({"input": [{"role": "user", "content": "a"}, {"role": "user", "content": [
        {"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "b"}]}]},
     "input[1].content[1].type"),
    ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "a"}]}]},
     "input[0].content[0].type"),
    ({"input": [{"role": "user", "content": ["a"]}]}, "input[0].content[0]"),
    ({"input": [{"type": "function_call_output", "call_id": "a", "output": [
        {"type": "input_image", "image_url": "b"}]}]}, "input[0].output[0].type"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tools": TOOLS + [{"type": "function", "name": "a b"}]}, "tools[1].name"),
    ({"tools": TOOLS + [{"type": "function", "name": "a", "parameters": "b"}]},
     "tools[1].parameters"),
    ({"tools": TOOLS, "tool_choice": {"type": "function", "name": "a"}}, "tool_choice.name"),
    ({"background": True}, "background"),
    ({"truncation": "auto"}, "truncation"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"max_output_tokens": 99999}, "max_output_tokens"),
    ({"metadata": "a"}, "metadata"),
    ({"include": ["a", 5]}, "include"),
    ({"include": ["reasoning.encrypted_content", "a"]}, "include[1]"),
    ({"reasoning": {"effort": "much"}}, "reasoning.effort"),
    ({"text": {"format": {"type": "json_schema", "name": "a", "schema": {"$ref": "#/nowhere"}}}},
     "text.format.schema"),
    ({"input": [{"type": "reasoning", "summary": [{"text": 5}]}]}, "input"),
])
def test_what_is_wrong_is_named(server, fields, param):
    answer = post(server, ASK | fields, "/v1/responses")
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param


def test_counts_the_tokens_of_a_request(client, server):
    first = client.responses.create(**ASK)
    for fields in ({}, {"instructions": "Be brief."}, {"previous_response_id": first.id},
                   {"input": [{"role": "user", "content": "a"}]}):
        counted = post(server, ASK | fields, "/v1/responses/input_tokens").json()
        answer = client.responses.create(**ASK | fields)
        assert counted == {"object": "response.input_tokens",
                           "input_tokens": answer.usage.input_tokens}
    assert post(server, {"input": []}, "/v1/responses/input_tokens").status_code == 400


def test_no_response_can_be_cancelled(client):
    response = client.responses.create(**ASK)
    with pytest.raises(openai.BadRequestError, match="Cannot cancel a synchronous response"):
        client.responses.cancel(response.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.cancel("resp_none")


def test_nothing_is_ignored_in_silence(server):
    answer = post(server, ASK | {"user": "me", "text": {"verbosity": "low"},
                                 "reasoning": {"summary": "auto"}}, "/v1/responses")
    assert set(answer.headers["x-winnow-ignored"].split(", ")) == {
        "text.verbosity", "reasoning.summary", "user"}


def test_items_are_listed_by_page(server, client):
    words = [f"word {i}" for i in range(5)]
    made = client.responses.create(**ASK | {"input": [{"role": "user", "content": word}
                                                      for word in words]})
    def listed(**query):
        return [item.content[0].text
                for item in client.responses.input_items.list(made.id, **query)]
    assert listed() == words[::-1]  # page by page, the last item first
    assert listed(order="asc", limit=2) == words
    items = f"{server.url}/v1/responses/{made.id}/input_items"
    page = httpx.get(items, params={"limit": 2, "order": "asc", "include": "x"})
    assert page.json()["has_more"] is True
    assert page.headers["X-Winnow-Ignored"] == "include"
    for query in ("limit=0", "limit=x", "order=up", "after=nobody"):
        answer = httpx.get(f"{items}?{query}")
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == query.split("=")[0]
    stream = httpx.get(f"{server.url}/v1/responses/{made.id}?stream=true")
    assert stream.status_code == 400 and stream.json()["error"]["param"] == "stream"


def test_whole_answers_are_of_openai_s_type(client):
    made = client.responses.with_raw_response.create(**ASK)
    openai.types.responses.Response.model_validate_json(made.text)
