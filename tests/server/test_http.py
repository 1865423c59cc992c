"""HTTP itself: limits, time-outs, keys, methods, clients that leave, shutting down."""
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import threading
import time

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from conftest import MODEL, PATIENCE, ROOT, logged, read_all, serving

LONG = {"model": MODEL, "prompt": "The sea was", "max_tokens": 3000, "temperature": 1,
        "ignore_eos": True}


def metrics(server, **kwargs):
    text = httpx.get(server.url + "/metrics", **kwargs).text
    values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            values[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return values


def value(server, name):
    return metrics(server)[name, ()]


def wait_until(what):
    end = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def post(server, body, path="/v1/completions", **kwargs):
    return httpx.post(server.url + path, json=body, **kwargs)


def rendered(server, messages, **fields):
    """A chat's prompt, as the template makes it."""
    answer = post(server, {"messages": messages, "return_token_strs": True} | fields, "/tokenize")
    return "".join(answer.json()["token_strs"]) if answer.status_code == 200 else answer.text


def streamed(server, body):
    """The thought and the text of a chat's answer, put together from a stream; the text comes last."""
    thought = content = ""
    for line in post(server, body | {"stream": True}, "/v1/chat/completions").text.splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                assert not (content and choice["delta"].get("reasoning_content"))
                thought += choice["delta"].get("reasoning_content") or ""
                content += choice["delta"].get("content") or ""
    return thought, content


def head_of(answer):
    return answer.split(b"\r\n", 1)[0].decode()


def request_bytes(body, path="/v1/completions", extra=""):
    data = json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{extra}"
            f"Content-Length: {len(data)}\r\n\r\n").encode() + data


def test_routes_and_methods(server):
    assert httpx.get(server.url + "/health").json() == {"status": "ok"}
    assert httpx.head(server.url + "/health").status_code == 200
    assert httpx.get(server.url + "/v1/nothing").status_code == 404
    assert httpx.get(server.url + "/v1/completions").status_code == 405
    assert httpx.get(server.url + "/v1/completions").headers["allow"] == "POST"
    assert httpx.delete(server.url + "/health").status_code == 405
    assert httpx.options(server.url + "/v1/models").status_code == 405
    assert httpx.request("BREW", server.url + "/v1/models").status_code == 501
    answer = server.ask_raw(b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 204") and b"Allow: GET, HEAD, POST" in answer
    assert b"Content-" not in answer.replace(b"X-Content-", b"")  # RFC 9110, section 8.6
    answer = server.ask_raw(b"GET /health HTTP/1.2\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(b'{"status":"ok"}')
    assert "access-control-allow-origin" not in httpx.get(server.url + "/health").headers
    assert httpx.get(server.url + "/v1/models/dms%2Dcr%38").json()["id"] == "dms-cr8"


@pytest.mark.parametrize("path", ["/../../etc/passwd", "/..%2f..%2fetc%2fpasswd", "//etc/passwd",
                                  "/page.js/../../x", "/%00", "/page.css%00.html"])
def test_no_file_but_the_pages(server, path):
    answer = server.ask_raw(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    assert head_of(answer) == "HTTP/1.1 404 Not Found"


def test_the_page_has_its_files(server):
    links = re.findall(r'(?:href|src)="(/[^"]*)"', httpx.get(server.url + "/").text)
    assert any("icon" in link for link in links)  # browsers ask for one anyhow
    assert {link: httpx.get(server.url + link).status_code for link in links} == dict.fromkeys(links, 200)


def test_request_ids(server):
    assert httpx.get(server.url + "/health", headers={"x-request-id": "a-b.7"}).headers[
        "x-request-id"] == "a-b.7"
    mine = httpx.get(server.url + "/health", headers={"x-request-id": "a b\t<c>"}).headers
    assert mine["x-request-id"].startswith("req-")
    assert '"id":"a-b.7"' in server.read_log()


def test_curl(server):
    if not shutil.which("curl"):
        pytest.skip("no curl here")
    out = subprocess.run(
        ["curl", "-sN", server.url + "/v1/completions", "-H", "Content-Type: application/json",
         "-d", json.dumps({"prompt": "The sea", "max_tokens": 4, "stream": True})],
        capture_output=True, check=True, text=True).stdout
    assert out.endswith("data: [DONE]\n\n")
    assert all(line.startswith("data: ") for line in out.split("\n\n") if line)


def test_metrics_are_prometheus(server):
    wait_until(lambda: value(server, "winnow_sequences_running") == 0)  # of earlier tests
    before = metrics(server)
    post(server, {"prompt": "The sea", "max_tokens": 5})
    def grew(name, **labels):
        key = name, tuple(sorted(labels.items()))
        return metrics(server).get(key, 0) - before.get(key, 0)
    # An exchange is counted when the client has its answer.
    wait_until(lambda: grew("winnow_http_requests_total", route="/v1/completions", status="200") == 1)
    assert grew("winnow_generated_tokens_total") == 5
    assert grew("winnow_requests_total", outcome="completed") == 1
    assert grew("winnow_first_token_seconds_count") == 1
    assert grew("winnow_between_tokens_seconds_count") == 4


def test_the_manual_lists_the_metrics(tmp_path):
    with serving("--host-gib", "0.1", "--cache-dir", str(tmp_path), "--draft-model", "assets/base") as s:
        page = httpx.get(s.url + "/metrics").text
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.M))
    told = re.findall(r"^# HELP (winnow_\S+) (.*)\.$", page, re.M)
    manual = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    assert len(told) > 40
    assert {"winnow_host_bytes", "winnow_stored_prefix_bytes", "winnow_draft_kv_bytes"} <= kinds.keys()
    for name, meaning in told:
        assert f"| `{name}` | {kinds[name]} | {meaning} |" in manual


def test_dashboard_and_alerts_ask_for_metrics_that_exist(server):
    post(server, {"prompt": "The sea", "max_tokens": 5})
    known = {name for name, _ in metrics(server)}
    for file in ("grafana.json", "alerts.yml"):
        asked = set(re.findall(r"winnow_\w+", (ROOT / "packaging" / file).read_text()))
        assert asked and asked <= known, file
    parts = {dict(labels)["part"] for name, labels in metrics(server)
             if name == "winnow_engine_seconds_total"}
    assert parts == {"plan", "draft", "forward", "sample", "deliver", "idle"}


def test_keep_alive_and_pipelining(server):
    with server.connect() as s:
        one = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
        s.sendall(one * 3 + b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert read_all(s).count(b'{"status":"ok"}') == 4
    answer = server.ask_raw(b"GET /health HTTP/1.0\r\n\r\n")
    assert answer.endswith(b'{"status":"ok"}')


def test_requests_after_the_time_out_get_no_answer_and_a_clean_end():
    with serving("--header-timeout", "0.5") as s:
        for late, answers in ((0.0, 3), (1.0, 0)):
            with s.connect() as connection:
                time.sleep(late)
                connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 2
                                   + b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                assert read_all(connection).count(b'{"status":"ok"}') == answers


def read_answer(connection):
    """One answer of /health, or nothing when the server has closed the connection."""
    connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    return connection.recv(65536)


def test_a_kept_connection_closes_later_than_a_slow_head():
    with serving("--header-timeout", "0.5", "--keep-alive-timeout", "2") as s:
        with s.connect() as connection:
            for pause in (0.0, 1.0):
                time.sleep(pause)
                assert b"200 OK" in read_answer(connection)
            begun = time.monotonic()
            assert connection.recv(1) == b""  # closed, without a request
            assert time.monotonic() - begun > 1.5
        with s.connect() as connection:
            assert b"200 OK" in read_answer(connection)
            connection.sendall(b"GET /hea")  # from here on the head's time counts
            begun = time.monotonic()
            assert connection.recv(1) == b""
            assert time.monotonic() - begun < 1.8


def test_the_time_between_requests_is_none_of_theirs():
    with serving() as s, s.connect() as connection:
        for pause in (0.0, 1.5):
            time.sleep(pause)
            assert b"200 OK" in read_answer(connection)
        time.sleep(1.5)
        connection.sendall(b"\r\nnonsense\r\n\r\n")  # an empty line counts for nothing
        assert b"400 Bad Request" in connection.recv(65536)
        wait_until(lambda: s.read_log().count('"seconds"') == 3)
        requests = [json.loads(line) for line in s.read_log().splitlines() if '"seconds"' in line]
        assert all(line["seconds"] < 1.0 for line in requests), requests


def test_idle_connections_make_room():
    with serving("--max-connections", "2") as s, s.connect() as one, s.connect() as two:
        assert b"200 OK" in read_answer(one) and b"200 OK" in read_answer(two)

        def is_answered():
            try:
                return httpx.get(s.url + "/health").status_code == 200
            except httpx.TransportError:
                return False

        wait_until(is_answered)


def test_http_1_0_streams_end_with_the_connection(server):
    body = json.dumps({"prompt": "The sea", "max_tokens": 3, "stream": True}).encode()
    answer = server.ask_raw(b"POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\n"
                            b"Content-Length: %d\r\n\r\n" % len(body) + body)
    assert b"chunked" not in answer and answer.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("data, status", [
    (b"nonsense\r\n\r\n", 400),
    (b"GET / HTTP/9.9\r\n\r\n", 505),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 50000 + b"\r\n\r\n", 431),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n\r\n", 413),
    (b"\x00\x01\x02\x03\r\n\r\n", 400),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
])
def test_what_is_not_a_request(server, data, status):
    answer = server.ask_raw(data)
    assert head_of(answer).split()[1] == str(status), answer
    assert b'"error":{"message":' in answer


def test_large_bodies_are_refused_while_they_come(server):
    body = b"x" * 10_000_000
    answer = httpx.post(server.url + "/v1/completions", content=body,
                        headers={"content-type": "application/json"})
    assert answer.status_code == 413
    def chunks():
        for _ in range(200):
            yield b"x" * 100_000
    answer = httpx.post(server.url + "/v1/completions", content=chunks(),
                        headers={"content-type": "application/json"})
    assert answer.status_code == 413


@pytest.mark.parametrize("path, body", [
    ("/v1/completions", {"prompt": " " * 8_000_000}),
    ("/tokenize", {"prompt": "'" * 8_000_000}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}] * 130_000}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": " " * 8_000_000}]}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}],
                              "chat_template_kwargs": {f"k{i}": i for i in range(300_000)}}),
    ("/v1/completions", {"prompt": [[]] * 2_000_000}),
    ("/v1/completions", {"prompt": "a", "ignored": [{}] * 2_000_000}),
])
def test_what_would_take_long_is_answered_at_once(server, path, body):
    start = time.monotonic()
    assert post(server, body, path).status_code in (200, 400)
    assert time.monotonic() - start < 60  # and not minutes


def test_others_go_on_while_a_large_body_is_parsed():
    with serving("--http-threads", "1", "--max-context", "64") as server:
        tokens = b'{"prompt":[' + b"5," * 3_900_000 + b"5]}"
        refused = []
        large = threading.Thread(target=lambda: refused.append(httpx.post(
            server.url + "/v1/completions", content=tokens, headers={"content-type": "application/json"})))
        large.start()
        answers = 0
        while large.is_alive():
            assert httpx.get(server.url + "/health").status_code == 200
            answers += large.is_alive()  # it came before the other one
        assert answers > 2
        assert refused[0].status_code == 400
        assert server.stop() == 0


def test_a_log_that_nobody_reads_stops_nothing():
    reading, writing = os.pipe()
    with serving(log=os.fdopen(writing, "w")) as server:
        for _ in range(400):  # lines for more than a pipe holds
            assert httpx.get(server.url + "/v1/models").status_code == 200
        metrics = httpx.get(server.url + "/metrics").text
        dropped = int(re.search(r"^winnow_log_lines_dropped_total (\d+)", metrics, re.M).group(1))
        assert dropped > 0
        os.set_blocking(reading, False)
        text = os.read(reading, 1 << 20).decode()
        assert all(json.loads(line) for line in text.splitlines()[:-1])  # the last may go on
        assert httpx.get(server.url + "/v1/models").status_code == 200
        assert server.stop() == 0
        lines = (text + os.read(reading, 1 << 20).decode()).splitlines()
        assert [json.loads(line) for line in lines][-1]["event"] == "stopped"
    os.close(reading)


def test_slow_heads_are_cut_off_and_others_are_served(server):
    slow = [server.connect() for _ in range(200)]
    for s in slow:
        s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX: ")
    assert post(server, {"prompt": "The sea", "max_tokens": 5}).status_code == 200
    for s in slow:
        assert read_all(s) == b""
        s.close()


def test_a_thousand_connections(server):
    idle = []
    try:
        for _ in range(1000):
            idle.append(server.connect())
        assert post(server, {"prompt": "The sea", "max_tokens": 5}).status_code == 200
    finally:
        for s in idle:
            s.close()
    wait_until(lambda: value(server, "winnow_http_connections") < 5)


def test_connections_are_not_bound_by_the_soft_limit_of_files():
    limits = 100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with serving("--header-timeout", "60",
                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limits)) as s:
        idle = [s.connect() for _ in range(200)]
        assert post(s, {"prompt": "The sea", "max_tokens": 5}).status_code == 200
        for connection in idle:
            connection.close()


def test_a_hard_limit_of_files_that_is_too_low_is_said():
    with serving("--max-connections", "1000",
                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (600, 600))) as s:
        assert "--max-connections 1000: they need 1320 open files, and this process may have 600" in s.read_log()


@pytest.mark.parametrize("stream", [True, False])
def test_leaving_cancels_and_frees(server, stream):
    cancelled = ("winnow_requests_total", (("outcome", "cancelled"),))
    before = metrics(server).get(cancelled, 0)
    clients = []
    for _ in range(5):
        s = server.connect()
        s.sendall(request_bytes(LONG | {"stream": stream, "n": 2}))
        clients.append(s)
    wait_until(lambda: value(server, "winnow_sequences_running") >= 10)
    for s in clients:
        s.close()
    wait_until(lambda: value(server, "winnow_requests_open") == 0)
    assert metrics(server)[cancelled] - before == 5


def test_half_closed_counts_as_gone(server):
    with server.connect() as s:
        s.sendall(request_bytes(LONG | {"stream": True}))
        s.recv(100)
        s.shutdown(socket.SHUT_WR)
        wait_until(lambda: value(server, "winnow_requests_open") == 0)


def test_pages_come_back(server):
    """With nobody asking, pages are held by prefixes; without prefixes by nobody."""
    with serving("--no-prefix-cache") as s:
        for _ in range(3):
            post(s, {"prompt": "The sea " * 200, "max_tokens": 5, "n": 3})
        wait_until(lambda: value(s, "winnow_requests_open") == 0)
        assert value(s, "winnow_kv_bytes") == 0
        assert value(s, "winnow_prefixes") == 0


def test_keys():
    with serving("--api-key", "first", "--api-key", "second", "--cors-origin", "https://a.b") as s:
        def status(path, key=None):
            headers = {"authorization": f"Bearer {key}"} if key else {}
            return httpx.get(s.url + path, headers=headers).status_code
        for wrong in (None, "firs", "first2", "firstfirst", "FIRST", "fi rst"):
            assert status("/v1/models", wrong) == 401, wrong
            assert status("/metrics", wrong) == 401
            assert status("/v1/nothing", wrong) == 401
        for right in ("first", "second"):
            assert status("/v1/models", right) == 200
        for scheme, expected in (("bearer", 200), ("BEARER", 200), ("Bearer ", 200), ("Basic", 401), ("Bearers", 401)):
            answer = httpx.get(s.url + "/v1/models", headers={"authorization": f"{scheme} first"})
            assert answer.status_code == expected, scheme
        assert status("/health") == 200 and status("/") == 200
        answer = httpx.get(s.url + "/v1/models")
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json()["error"]["type"] == "authentication_error"
        assert answer.headers["access-control-allow-origin"] == "https://a.b"
        asked = httpx.options(s.url + "/v1/completions")
        assert asked.status_code == 204
        assert "Authorization" in asked.headers["access-control-allow-headers"]
        own = "authorization,content-type,x-stainless-lang"  # as OpenAI's client in a browser asks
        asked = httpx.options(s.url + "/v1/completions",
                              headers={"access-control-request-headers": own})
        assert asked.headers["access-control-allow-headers"] == own
        assert "X-Request-Id" in answer.headers["access-control-expose-headers"]


def test_a_full_queue_is_429():
    with serving("--max-requests", "2") as s:
        clients = [s.connect() for _ in range(2)]
        for c in clients:
            c.sendall(request_bytes(LONG))
        wait_until(lambda: value(s, "winnow_requests_open") == 2)
        answer = post(s, {"prompt": "The sea", "max_tokens": 1})
        assert answer.status_code == 429 and answer.headers["retry-after"] == "1"
        assert answer.json()["error"]["type"] == "rate_limit_error"
        for c in clients:
            c.close()
        wait_until(lambda: value(s, "winnow_requests_open") == 0)
        assert post(s, {"prompt": "The sea", "max_tokens": 1}).status_code == 200


def test_tls(tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("no openssl here")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
                    "-keyout", key, "-out", cert], check=True, capture_output=True)
    with serving("--tls-cert", str(cert), "--tls-key", str(key)) as s:
        answers = [httpx.get(s.url.replace("https", "http") + "/health") for _ in range(3)]
        assert all(a.status_code == 400 and a.json()["error"]["code"] == "tls_needed" for a in answers)
        assert [w["message"] for w in logged(s, "http")] == ["requests in plain HTTP on the port for TLS: 1"]
        assert s.url.startswith("https://")
        with httpx.Client(verify=str(cert), base_url=s.url) as client:
            for _ in range(2):
                answer = client.post("/v1/completions",
                                     json={"prompt": "The sea", "max_tokens": 3, "stream": True})
                assert answer.text.endswith("data: [DONE]\n\n")
        with s.connect() as plain:
            plain.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"200" not in read_all(plain)
        assert s.process.poll() is None


def test_sigterm_finishes_answers():
    with serving("--shutdown-timeout", str(PATIENCE)) as s:
        answers = []
        thread = threading.Thread(target=lambda: answers.append(
            post(s, LONG | {"max_tokens": 600})))
        thread.start()
        wait_until(lambda: value(s, "winnow_sequences_running") == 1)
        s.process.send_signal(signal.SIGTERM)
        wait_until(lambda: httpx.get(s.url + "/health").status_code == 503)
        refused = post(s, {"prompt": "The sea", "max_tokens": 1})
        assert refused.status_code == 503 and refused.headers["retry-after"] == "1"
        assert refused.json()["error"]["code"] == "shutting_down"
        thread.join(PATIENCE)
        assert answers[0].status_code == 200
        assert answers[0].json()["usage"]["completion_tokens"] == 600
        assert s.process.wait(PATIENCE) == 0
        with pytest.raises(ConnectionRefusedError):
            s.connect()


def test_sigterm_has_a_deadline_and_a_second_signal_is_final():
    with serving("--shutdown-timeout", "0.5") as s, s.connect() as c, s.connect() as stream:
        c.sendall(request_bytes(LONG | {"n": 4}))
        stream.sendall(request_bytes(LONG | {"n": 4, "stream": True}))
        wait_until(lambda: value(s, "winnow_sequences_running") == 8)
        assert s.stop() == 0
        assert b'"finished":false' in s.read_log().encode()
        answer = read_all(c)
        assert answer.startswith(b"HTTP/1.1 503") and b"shutting_down" in answer
        assert b"Retry-After" in answer
        events = read_all(stream)
        assert events.startswith(b"HTTP/1.1 200") and events.endswith(b"0\r\n\r\n")
        assert b'data: {"error":' in events and b"shutting_down" in events
    with serving("--shutdown-timeout", "60") as s, s.connect() as c:
        c.sendall(request_bytes(LONG | {"stream": True, "n": 20}))
        wait_until(lambda: value(s, "winnow_sequences_running") >= 1)
        s.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert s.stop(signal.SIGTERM) == -signal.SIGTERM


def test_half_sent_requests_do_not_hold_the_end():
    with serving("--shutdown-timeout", "60") as s, s.connect() as head, s.connect() as body:
        head.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n")
        body.sendall(request_bytes({"prompt": "The sea"})[:-3])
        wait_until(lambda: value(s, "winnow_http_connections") >= 3)  # one asks for this number
        start = time.monotonic()
        assert s.stop() == 0
        assert time.monotonic() - start < 20


def test_flags_are_checked():
    from conftest import BINARY, ROOT
    for flags in (["--port", "70000"], ["--log-level", "loud"], ["--max-requests", "0"],
                  ["--tls-cert", "x"], ["--host", "no.such.host.invalid"],
                  ["--header-timeout", "-1"], ["--api-key-file", os.devnull]):
        done = subprocess.run([BINARY, "serve", "--model", "assets/dms-cr8", "--port", "0", *flags],
                              cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 1 and done.stderr.count("winnow: error: --") == 1, done.stderr


@pytest.mark.parametrize("flags, open_to_all", [([], False), (["--host", "0.0.0.0"], True),
                                                (["--host", "0.0.0.0", "--api-key", "secret"], False)])
def test_a_server_without_keys_says_so(flags, open_to_all):
    from conftest import BINARY, ROOT
    process = subprocess.Popen([BINARY, "serve", "--model", "assets/dms-cr8", "--port", "0", *flags],
                               cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline().startswith("winnow serves on http://")
    process.terminate()
    _, told = process.communicate(timeout=PATIENCE)
    assert ("whoever reaches this server may use it" in told) == open_to_all, told
