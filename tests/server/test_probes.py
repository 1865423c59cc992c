"""What routers and probes ask a server: metrics, /ready."""
import signal

import httpx
import pytest
from conftest import PATIENCE, serving
from test_http import metrics, post, wait_until


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
        for name, own, count in (("time_to_first_token", "first_token", 1),
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
        assert "outcome: completed, cancelled (the client left) or failed" in text


def test_routers_hear_of_the_end_before_it_comes():
    with serving("--drain-delay", "3", "--shutdown-timeout", "5") as s:
        assert httpx.get(s.url + "/ready").json() == {"status": "ok"}
        s.process.send_signal(signal.SIGTERM)
        wait_until(lambda: httpx.get(s.url + "/ready").status_code == 503)
        assert httpx.get(s.url + "/ready").json() == {"status": "draining"}
        assert httpx.get(s.url + "/health").status_code == 200
        assert post(s, {"prompt": "The sea was", "max_tokens": 3}).status_code == 200
        assert s.process.wait(PATIENCE) == 0
