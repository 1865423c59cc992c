"""What routers and probes ask a server: metrics, /ready."""
import signal

import httpx
import pytest
from conftest import PATIENCE, logged, read_all, serving
from test_http import LONG, metrics, post, request_bytes, wait_until


def test_metrics_for_routers(server):
    own = metrics(server)
    assert 0 <= own["winnow_kv_utilisation", ()] <= 1
    assert own["winnow_kv_block_tokens", ()] == 16
    blocks = own["winnow_kv_blocks", ()]
    # 8 layers x 2 heads x 16 entries of 64 channels of K and V in bf16, but for a page's rounding
    assert blocks == pytest.approx(own["winnow_kv_capacity_bytes", ()] / (8 * 2 * 16 * 256), rel=0.02)
    assert not any(name.startswith("vllm:") for name, _ in own)
    with serving("--metrics-names", "vllm", "--kv-block-size", "32", "--model-name", 'a "b"') as s:
        post(s, {"prompt": "The sea was", "max_tokens": 5})
        told = metrics(s)
        labels = (("engine", "0"), ("model_name", 'a "b"'))
        for name in ("num_requests_waiting", "num_requests_running"):
            assert told[f"vllm:{name}", labels] == 0
        for name in ("kv_cache_usage_perc", "gpu_cache_usage_perc"):
            assert told[f"vllm:{name}", labels] == told["winnow_kv_utilisation", ()]
        assert told["vllm:generation_tokens_total", labels] == 5
        ended = tuple(sorted(labels + (("finished_reason", "length"),)))
        assert told["vllm:request_success_total", ended] == 1
        for name, own, count in (("request_queue_time", "queue", 1), ("time_to_first_token", "first_token", 1),
                                 ("inter_token_latency", "between_tokens", 4),
                                 ("e2e_request_latency", "request", 1)):
            assert told[f"vllm:{name}_seconds_count", labels] == count
            assert told[f"vllm:{name}_seconds_sum", labels] == told[f"winnow_{own}_seconds_sum", ()]
            every = tuple(sorted(labels + (("le", "+Inf"),)))
            assert told[f"vllm:{name}_seconds_bucket", every] == count
        info = (("block_size", "32"), ("engine", "0"), ("num_gpu_blocks", f"{blocks // 2:.0f}"))
        assert told["vllm:cache_config_info", info] == 1


def test_limits_stand_beside_what_they_limit():
    with serving("--max-sequences", "2", "--max-requests", "7", "--max-connections", "30") as s:
        told = metrics(s)
        assert [told[f"winnow_max_{what}", ()] for what in ("sequences", "requests", "connections")] == [2, 7, 30]
        assert httpx.get(s.url + "/props").json()["total_slots"] == 2
        text = httpx.get(s.url + "/metrics").text
        assert "outcome: completed, cancelled (the client left), refused (an error of the client that their " \
            "run showed) or failed" in text


def test_limits_follow_the_number_of_sequences():
    with serving("--max-sequences", "600", "--log-level", "info") as s:
        serves, = logged(s, "serving")
        assert [serves[f"max_{what}"] for what in ("sequences", "requests", "connections")] == [600, 1200, 2400]


def test_the_log_tells_what_is_served_and_leaves_out_probes():
    with serving("--log-level", "info", "--max-sequences", "3") as s:
        for path in ("/health", "/ready", "/metrics", "/version"):
            assert httpx.get(s.url + path).status_code == 200
        wait_until(lambda: logged(s, "request"))
        assert [line["path"] for line in logged(s, "request")] == ["/version"]
        serves, = logged(s, "serving")
        version = httpx.get(s.url + "/version").json()
        assert (serves["version"], serves["commit"]) == (version["version"], version["commit"])
        labels = f'winnow_build_info{{version="{version["version"]}",commit="{version["commit"]}"}} 1'
        assert labels in httpx.get(s.url + "/metrics").text
        assert (serves["device"], serves["weights"], serves["kv_dtype"]) == ("cpu", "auto", "bf16")
        assert serves["kv_capacity_bytes"] == metrics(s)["winnow_kv_capacity_bytes", ()] > 0
        assert serves["max_sequences"] == 3 and serves["max_requests"] == 256
        assert serves["max_connections"] == 1024 and serves["max_context"] > 0


def test_the_log_tells_streams_that_were_cut():
    with serving("--shutdown-timeout", "0.5") as s, s.connect() as cut, s.connect() as left:
        for connection in (cut, left):
            connection.sendall(request_bytes(LONG | {"stream": True}))
            assert b"200 OK" in connection.recv(1024)
        left.close()
        wait_until(lambda: [line["outcome"] for line in logged(s, "request")] == ["gone"])
        s.process.send_signal(signal.SIGTERM)
        assert b"shutting_down" in read_all(cut)
        s.process.wait(PATIENCE)
        assert [line["outcome"] for line in logged(s, "request")] == ["gone", "cut"]


def test_routers_hear_of_the_end_before_it_comes():
    with serving("--drain-delay", "3", "--shutdown-timeout", "5") as s:
        assert httpx.get(s.url + "/ready").json() == {"status": "ok"} and metrics(s)["winnow_ready", ()] == 1
        s.process.send_signal(signal.SIGTERM)
        wait_until(lambda: httpx.get(s.url + "/ready").status_code == 503)
        assert httpx.get(s.url + "/ready").json() == {"status": "draining"}
        assert metrics(s)["winnow_ready", ()] == 0
        assert httpx.get(s.url + "/health").status_code == 200
        assert post(s, {"prompt": "The sea was", "max_tokens": 3}).status_code == 200
        assert s.process.wait(PATIENCE) == 0
