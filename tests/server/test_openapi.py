"""/openapi.json says what the handlers take, and nothing else."""
import httpx
import pytest
from conftest import serving
from openapi_spec_validator import validate
from test_http import post
from test_vectors import made_for_vectors

VALUES = {"string": "one", "boolean": True, "number": 1.5, "object": {"a": 1}, "array": [[1.5]], "null": None}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Of a model that has all doors."""
    with serving("--serve-states", model=made_for_vectors(tmp_path_factory.mktemp("doors"))) as s:
        yield s


@pytest.fixture(scope="module")
def document(server):
    return httpx.get(server.url + "/openapi.json").json()


def requests_of(document):
    for path, methods in document["paths"].items():
        if "requestBody" in methods.get("post", {}):
            schema = methods["post"]["requestBody"]["content"]["application/json"]["schema"]
            name = schema["$ref"].rsplit("/", 1)[1]
            yield path, document["components"]["schemas"][name]


def test_it_is_openapi(document):
    validate(document)


def test_every_path_is_answered_in_its_methods(server, document):
    for path, methods in document["paths"].items():
        url = server.url + path.replace("{", "").replace("}", "")
        for method in ("get", "post", "delete"):
            answer = httpx.request(method, url)
            assert (answer.status_code == 405) == (method not in methods), (method, path)
            if answer.status_code == 404:  # a model, or a response, that there is not
                assert "{" in path and answer.json()["error"]["code"] != "unknown_url"


def needed(schema):
    """What a request must have."""
    given = {"messages": [{"role": "user", "content": "a"}], "prompt": "a", "input": "a",
             "tokens": [5, 6], "max_tokens": 1, "query": "a", "documents": ["b"]}
    return {name: given[name] for name in schema.get("required", [])}


def error_of(answer):
    error = answer.json()["error"]
    return error.get("param") or error["message"]


def wrong_values(schema):
    """Values that a schema of the document refuses, in each place that it speaks of."""
    named = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    types = {"number" if name == "integer" else name for name in named}
    yield from (value for of, value in VALUES.items() if of not in types)
    if "integer" in named:
        yield 1.5
    if "minimum" in schema:
        yield schema["minimum"] - 1
    if "maximum" in schema:
        yield schema["maximum"] + 1
    for value in wrong_values(schema["items"]) if "items" in schema else ():
        yield [value]
    for name, inner in schema.get("properties", {}).items():
        yield from ({name: value} for value in wrong_values(inner))


def test_fields_are_read_as_they_are_described(server, document):
    """A value of the wrong type, or beyond the bounds, is refused under the field's name, whatever is in it."""
    checked = 0
    for path, schema in requests_of(document):
        short = {n: 1 for n in ("max_tokens", "max_output_tokens") if n in schema["properties"]}
        for name, field in schema["properties"].items():
            for value in wrong_values(field):
                answer = post(server, needed(schema) | short | {name: value}, path)
                assert answer.status_code == 400, (path, name, value)
                assert name in error_of(answer), (path, name, value, answer.json())
                checked += 1
    assert checked > 2000


def test_what_is_required_is_missed(server, document):
    for path, schema in requests_of(document):
        for name in schema.get("required", []):
            body = {n: value for n, value in needed(schema).items() if n != name}
            answer = post(server, body, path)
            assert answer.status_code == 400 and name in answer.text, (path, name)
        if "required" in schema:
            full = needed(schema) | {"max_tokens": 1, "max_output_tokens": 1}
            answer = post(server, full, path)
            assert answer.status_code == 200, (path, answer.text)


def test_no_other_field_has_an_effect(server, document):
    for path, schema in requests_of(document):
        if {"prompt", "messages"} & set(schema.get("required", [])):
            body = {n: {"messages": [{"role": "user", "content": "a"}], "prompt": "a",
                        "max_tokens": 1}[n] for n in schema["required"]}
            answer = post(server, body | {"max_tokens": 1, "zzz_unknown": 1}, path)
            assert answer.headers["x-winnow-ignored"] == "zzz_unknown", path
