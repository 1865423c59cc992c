"""What is refused, and what is said of it."""
import subprocess

import httpx
import pytest
from conftest import BINARY, PATIENCE, ROOT, read_all, serving
from test_http import LONG, post, request_bytes, value, wait_until


@pytest.mark.parametrize("content_type, status", [
    ("application/json", 200), ("Application/JSON; charset=utf-8", 200), ("application/json ;x", 200),
    ("text/plain", 415), ("application/jsonl", 415), ("application/json-patch+json", 415),
    ("application/jsonx;charset=utf-8", 415), ("", 415)])
def test_content_types(server, content_type, status):
    answer = httpx.post(server.url + "/tokenize", content=b'{"prompt": "a"}',
                        headers={"content-type": content_type})
    assert answer.status_code == status


def test_without_a_key_no_body_is_read():
    with serving("--api-key", "first") as s:
        for length, status in (("100000", b"401"), ("0", b"200")):  # where no key is needed
            head = f"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
            assert s.ask_raw(head.encode()).startswith(b"HTTP/1.1 " + status)
        for key, status in (("", b"401"), ("Authorization: Bearer firs\r\n", b"401"),
                            ("Authorization: Bearer first\r\n", b"200")):
            with s.connect() as c:
                c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n"
                          b"Content-Type: application/json\r\n" + key.encode() + b"\r\n")
                if status == b"401":
                    assert read_all(c).startswith(b"HTTP/1.1 401 ")
                else:
                    c.sendall(b'{"prompt":"The sea"}')
                    assert c.recv(12) == b"HTTP/1.1 200"


def test_tls_files_that_are_none(tmp_path):
    text = tmp_path / "text"
    text.write_text("no certificate")
    for file, message in ((tmp_path / "nope", "No such file or directory"),
                          (text, "is no certificate in PEM")):
        done = subprocess.run([BINARY, "serve", "--model", "assets/dms-cr8", "--port", "0",
                               "--tls-cert", file, "--tls-key", file],
                              cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 1 and f"--tls-cert {file}: {message}" in done.stderr, done.stderr


@pytest.mark.parametrize("path, body, param", [
    ("/v1/completions", {"prompt": [999999]}, "prompt"),
    ("/v1/completions", {"prompt": "a", "echo": True, "max_tokens": 0}, "max_tokens"),
    ("/detokenize", {"tokens": [5, 999999]}, "tokens"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a", "token_ids": [999999]}]},
     "messages[0].token_ids"),
    ("/v1/chat/completions", {"messages": [{"role": "assistant", "tool_calls": [
        {"id": 5, "type": "function", "function": {"name": "f", "arguments": "{}"}}]}]},
     "messages[0].tool_calls[0].id"),
])
def test_errors_name_the_field_and_no_file(server, path, body, param):
    answer = post(server, body, path)
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["param"] == param, error
    assert error["code"] == "invalid_value" and "/" not in error["message"], error


def test_prompts_find_places_together_or_not_at_all():
    with serving("--max-requests", "3") as s, s.connect() as c:
        answer = post(s, {"prompt": ["a"] * 4, "max_tokens": 1})
        assert answer.status_code == 400 and answer.json()["error"]["param"] == "prompt"
        assert "4 prompts" in answer.json()["error"]["message"]
        assert "--max-requests" in answer.json()["error"]["message"]
        c.sendall(request_bytes(LONG))
        wait_until(lambda: value(s, "winnow_requests_open") == 1)
        assert post(s, {"prompt": ["a"] * 3, "max_tokens": 1}).status_code == 429
        assert value(s, "winnow_requests_open") == 1
        answer = post(s, {"prompt": ["a"] * 2, "max_tokens": 1})
        assert answer.status_code == 200 and len(answer.json()["choices"]) == 2


@pytest.mark.parametrize("field, text", [
    ("response_format", '{"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": NaN}}}'),
    ("tools", '[{"type": "function", "function": {"name": "f", "parameters": {"x": Infinity}}}]'),
])
def test_numbers_that_json_lacks_are_refused_where_order_counts(server, field, text):
    body = '{"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "%s": %s}' % (field, text)
    answer = httpx.post(server.url + "/v1/chat/completions", content=body.encode(),
                        headers={"Content-Type": "application/json"})
    assert answer.status_code == 400, answer.text
    assert "NaN and Infinity are not JSON" in answer.text
