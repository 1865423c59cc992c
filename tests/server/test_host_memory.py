"""serve --host-gib: prefixes that leave the cache come back from the host's memory."""
from conftest import logged, serving
from test_cache_dir import TEXT, ask
from test_http import value, wait_until


def test_prefixes_come_back_from_the_hosts_memory():
    question = TEXT + "Question: Which number did the first fox have?\nAnswer:"
    with serving("--deterministic") as server:
        text, _ = ask(server, question)
        again, _ = ask(server, question + text + " And the last?")
    with serving("--deterministic", "--host-gib", "0.0625", "--prefix-cache-gib", "0.000001") as server:
        assert ask(server, question) == (text, 0)
        wait_until(lambda: value(server, "winnow_kv_bytes") == 0)
        assert value(server, "winnow_host_prefixes") == 1
        assert 0 < value(server, "winnow_host_bytes") <= 2**26
        answer, cached = ask(server, question + text + " And the last?")
        assert (answer, cached > 300) == (again, True)
        assert value(server, "winnow_host_restored_total") == 1
        assert value(server, "winnow_host_restored_tokens_total") == cached
        assert value(server, "winnow_host_saved_total") == 2
        assert value(server, "winnow_host_refused_total") == 0
        assert value(server, "winnow_host_damaged_total") == 0
        assert server.stop() == 0
        serves, = logged(server, "serving")
        assert serves["host_capacity_bytes"] == 2**26
