"""serve --cache-dir: prefixes that outlive the server, and what may be wrong with them."""
import resource
import signal
import subprocess
import threading

import httpx
import pytest

from conftest import BINARY, PATIENCE, ROOT, serving
from test_http import post, value, wait_until

TEXT = "".join(f"The quick brown fox number {i} jumps over the lazy dog. " for i in range(30))


def ask(server, prompt, **fields):
    answer = post(server, {"prompt": prompt, "max_tokens": 8, "temperature": 0, **fields}).json()
    return answer["choices"][0]["text"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "states"


def flags(directory, *more):
    return ("--cache-dir", str(directory), "--deterministic", *more)


def files(directory):
    return sorted(directory.glob("*.state"))


def test_prefixes_outlive_the_server(directory):
    question = TEXT + "Question: Which number did the first fox have?\nAnswer:"
    with serving(*flags(directory)) as server:
        text, cached = ask(server, question)
        assert cached == 0
        wait_until(lambda: value(server, "winnow_stored_prefix_files") > 0)  # while idle
        assert value(server, "winnow_stored_prefix_written_total") == len(files(directory))
        assert server.stop() == 0
    assert directory.stat().st_mode & 0o077 == 0  # they tell what was asked
    with serving(*flags(directory)) as server:
        again, cached = ask(server, question + text + " And the last?")
        assert cached > 300
        assert value(server, "winnow_stored_prefix_hits_total") == 1
        assert value(server, "winnow_stored_prefix_bytes") > 0
        assert server.stop() == 0
    with serving("--deterministic") as server:
        assert ask(server, question) == (text, 0)
        assert ask(server, question + text + " And the last?")[0] == again


def test_what_two_requests_share_is_stored_at_shutdown(directory):
    with serving(*flags(directory)) as server:
        for name in ("Ada", "Ben"):
            ask(server, TEXT + name)
        assert server.stop() == 0
    with serving(*flags(directory)) as server:
        text, cached = ask(server, TEXT + "Cleo")
        assert cached > 300
        assert ask(server, TEXT + "Cleo")[0] == text


def test_damaged_files_are_refused(directory):
    with serving(*flags(directory)) as server:
        text, _ = ask(server, TEXT)
        assert server.stop() == 0
    for file in files(directory):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    with serving(*flags(directory)) as server:
        # Finished answers are found by who goes on from them.
        prompt = TEXT + text + " More."
        answer, cached = ask(server, prompt)
        assert cached == 0
        assert value(server, "winnow_stored_prefix_refused_total") == 1
        assert "is damaged: its checksum does not match" in server.read_log()
        assert server.stop() == 0
    with serving("--deterministic") as server:
        assert ask(server, prompt)[0] == answer


def test_a_full_disk_is_a_warning(directory):
    def no_room():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100000, resource.RLIM_INFINITY))
    with serving(*flags(directory), preexec_fn=no_room) as server:
        text, _ = ask(server, TEXT)
        wait_until(lambda: value(server, "winnow_stored_prefix_dropped_total") > 0)
        assert ask(server, TEXT)[0] == text
        assert "cannot write" in server.read_log()
        assert server.stop() == 0
    assert not [file for file in directory.iterdir() if file.is_file()]


def test_two_servers_share_a_directory(directory):
    prompts = [TEXT + f"Question {i}." for i in range(6)]
    answers = {}
    with serving(*flags(directory, "--cache-dir-size", "0.01")) as one, \
            serving(*flags(directory, "--cache-dir-size", "0.01")) as two:
        def work(server, name):
            for turn in range(3):
                for prompt in prompts:
                    answers[name, turn, prompt] = ask(server, prompt)[0]
        threads = [threading.Thread(target=work, args=pair) for pair in ((one, 1), (two, 2))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for server in (one, two):
            assert value(server, "winnow_stored_prefix_refused_total") == 0
            assert value(server, "winnow_stored_prefix_dropped_total") == 0
            assert server.stop() == 0
    for (_, _, prompt), text in answers.items():
        assert text == answers[1, 0, prompt]
    assert sum(file.stat().st_size for file in files(directory)) <= 0.01 * 2**30
    assert not list(directory.glob("*.tmp*"))


@pytest.mark.parametrize("words, complaint", [
    (("--cache-dir", "/dev/null"), "is not a directory"),
    (("--cache-dir", "/tmp", "--no-prefix-cache"), "--no-prefix-cache keeps none"),
    (("--cache-dir", "/tmp", "--cache", "tova", "--cr", "4"), "under tova"),
    (("--cache-dir", "/tmp", "--cache-dir-size", "-1"), "--cache-dir-size -1"),
])
def test_what_cannot_be(words, complaint):
    result = subprocess.run([BINARY, "serve", "--model", "assets/dms-cr8", "--port", "0", *words],
                            cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert result.returncode == 1
    assert complaint in result.stderr
    assert result.stderr.count("\n") == 1


def test_responses_outlive_the_server(directory):
    asked = {"input": TEXT, "max_output_tokens": 8, "temperature": 0}
    with serving(*flags(directory)) as server:
        first = post(server, asked, "/v1/responses").json()
        assert server.stop() == 0
    stored = list((directory / "responses").iterdir())
    assert [file.name for file in stored] == [first["id"] + ".json"]
    assert stored[0].stat().st_mode & 0o077 == 0
    with serving(*flags(directory)) as server, serving(*flags(directory)) as other:
        path = f"/v1/responses/{first['id']}"
        assert httpx.get(server.url + path).json() == first
        again = post(server, {"input": "And then?", "previous_response_id": first["id"],
                              "max_output_tokens": 4}, "/v1/responses").json()
        assert again["usage"]["input_tokens_details"]["cached_tokens"] > 300
        assert httpx.delete(other.url + path).json()["deleted"] is True
        assert httpx.get(server.url + path).status_code == 404
        stored = directory / "responses" / (again["id"] + ".json")
        stored.write_text(stored.read_text()[:50])
        assert httpx.get(f"{server.url}/v1/responses/{again['id']}").status_code == 404
        assert httpx.get(f"{server.url}/v1/responses/..%2f..%2fconfig").status_code == 404
