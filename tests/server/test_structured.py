"""Answers that have a form, whatever the model would rather say."""
import json
import re

import jsonschema
import openai
import pytest
from conftest import MODEL
from test_http import post

CHAT = "/v1/chat/completions"
PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
                                           "age": {"type": "integer", "minimum": 0,
                                                   "maximum": 150}},
          "required": ["name", "age"], "additionalProperties": False}
TREE = {"$defs": {"node": {"type": "object", "properties": {
    "value": {"type": "integer", "minimum": -9, "maximum": 9},
    "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
    "required": ["value", "next"]}}, "$ref": "#/$defs/node"}
SCHEMAS = [
    PERSON, TREE, {"type": "object", "maxProperties": 2, "propertyNames": {"pattern": "^[a-z]{1,3}$"},
                   "additionalProperties": {"type": "boolean"}},
    {"enum": ["red", 5, None, {"a": [1]}]}, {"type": "string", "format": "date-time"},
    {"type": "string", "format": "email", "maxLength": 20}, {"type": "string", "format": "uuid"},
    {"type": "string", "pattern": "^[A-Z]{3}-\\d{2,4}$"},
    {"type": "number", "exclusiveMinimum": 0.5, "maximum": 10},
    {"type": "integer", "multipleOf": 7, "minimum": -100, "maximum": 100},
    {"type": "array", "prefixItems": [{"const": 1}, {"type": "string", "maxLength": 3}],
     "items": {"type": "boolean"}, "minItems": 2, "maxItems": 5},
    {"oneOf": [{"properties": {"kind": {"const": "a"}, "x": {"type": "integer"}},
                "required": ["kind", "x"]},
               {"properties": {"kind": {"const": "b"}, "y": {"type": "null"}},
                "required": ["kind", "y"]}]},
    {"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]},
               {"properties": {"a": {"maximum": 3}, "b": {"type": "null"}}}]},
    {"type": "object", "properties": {"k": {"type": "null"}, "a": {"type": "null"},
                                      "b": {"type": "null"}},
     "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
    {"patternProperties": {"^i_[a-z]{1,4}$": {"type": "integer", "maximum": 9, "minimum": 0}},
     "additionalProperties": False, "maxProperties": 3},
]


def ask(server, **fields):
    answer = post(server, {"messages": [{"role": "user", "content": "Go on."}], "max_tokens": 200,
                           "temperature": 1.5} | fields, CHAT)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: json.dumps(s)[:60])
def test_answers_are_valid(server, schema):
    checker = jsonschema.Draft202012Validator(schema,
                                              format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    ended = 0
    for choice in ask(server, n=16, seed=1, response_format={
            "type": "json_schema", "json_schema": {"name": "x", "schema": schema}}):
        if choice["finish_reason"] == "stop":
            checker.validate(json.loads(choice["message"]["content"]))
            ended += 1
    assert ended > 0


@pytest.mark.parametrize("fields, pattern", [
    ({"guided_regex": "[0-9]{3}"}, "[0-9]{3}"),
    ({"structured_outputs": {"regex": "(yes|no)!?"}}, "(yes|no)!?"),
    ({"guided_choice": ["one", "two", "é"]}, "one|two|é"),
    ({"grammar": "root ::= \"yes\""}, "yes"), ({"ebnf": "root ::= \"yes\" | \"no\""}, "yes|no"),
    ({"guided_grammar": "start: \"a\" ~ 2..3"}, "a{2,3}"),
    ({"response_format": {"type": "regex", "value": "[0-9]{3}"}}, "[0-9]{3}"),  # TGI's
    ({"response_format": {"type": "json", "value": {"enum": [1, 2]}}}, "1|2"),
])
def test_other_forms(server, fields, pattern):
    for choice in ask(server, n=4, seed=2, **fields):
        assert choice["finish_reason"] == "stop"
        assert re.fullmatch(pattern, choice["message"]["content"])


@pytest.mark.parametrize("form", [{"json": PERSON}, {"json_object": True}], ids=lambda f: next(iter(f)))
def test_no_white_space_if_that_is_asked_for(server, form):
    ended = 0
    for choice in ask(server, n=16, seed=1, structured_outputs=form | {"disable_any_whitespace": True}):
        text = choice["message"]["content"]
        if choice["finish_reason"] == "stop":
            assert isinstance(json.loads(text), dict)
            assert " " not in re.sub(r'"(\\.|[^"\\])*"', "", text)
            ended += 1
    assert ended > 0


def test_streams_and_deterministic_seeds(server):
    fields = {"guided_json": PERSON, "seed": 3, "temperature": 1.0}
    assert ask(server, **fields)[0]["message"] == ask(server, **fields)[0]["message"]
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    text = "".join(piece.choices[0].delta.content or "" for piece in
                   client.chat.completions.create(
                       model=MODEL, messages=[{"role": "user", "content": "Go on."}],
                       max_tokens=200, temperature=1, seed=3, stream=True,
                       extra_body={"guided_json": PERSON}))
    jsonschema.validate(json.loads(text), PERSON)


def test_forms_go_with_other_rules(server):
    choice = ask(server, guided_choice=["one", "two"], bad_words=["one"], temperature=0)[0]
    assert choice["message"]["content"] == "two"
    answer = post(server, {"messages": [{"role": "user", "content": "a"}],
                           "guided_choice": ["one"], "allowed_token_ids": [7]}, CHAT)
    assert answer.status_code == 400 and answer.json()["error"]["code"] == "no_token_left"
    choice = ask(server, guided_choice=["one"], min_tokens=50, temperature=0)[0]
    assert choice["message"]["content"] == "one"


@pytest.mark.parametrize("fields, param, word", [
    ({"guided_json": {"not": {}}}, "guided_json", "not"),
    ({"response_format": {"type": "json_schema", "json_schema": {
        "name": "x", "schema": {"type": "array", "uniqueItems": True}}}}, "response_format.json_schema"
     ".schema", "uniqueItems"),
    ({"structured_outputs": {"json": False}}, "structured_outputs.json", "no text"),
    ({"guided_regex": "(?=a)"}, "guided_regex", "lookahead"),
    ({"grammar": "root ::= x"}, "grammar", "no rule x"),
    ({"response_format": {"type": "structural_tag"}}, "response_format.type", "structural_tag"),
])
def test_what_cannot_be_held_to_is_named(server, fields, param, word):
    answer = post(server, {"messages": [{"role": "user", "content": "a"}]} | fields, CHAT)
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["param"] == param and word in error["message"], error


def test_pydantic(client):
    import pydantic

    class Person(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=10)
        age: int = pydantic.Field(ge=0, le=150)

    parsed = client.chat.completions.parse(
        model=MODEL, messages=[{"role": "user", "content": "Bob is 5."}], response_format=Person,
        max_tokens=100, temperature=0)
    assert isinstance(parsed.choices[0].message.parsed, Person)
