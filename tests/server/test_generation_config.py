"""How tokens are chosen where a request does not say: as the model's authors have it."""
import json

import httpx
import pytest
from conftest import ROOT, serving
from test_http import post


def with_config(folder, config):
    """The demo model with another generation_config.json."""
    for file in (ROOT / "assets/dms-cr8").iterdir():
        if file.name != "generation_config.json":
            (folder / file.name).symlink_to(file)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 1} | config))
    return str(folder)


def text(server, **fields):
    answer = post(server, {"prompt": "The sea was", "max_tokens": 24} | fields)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["text"]


def test_the_models_defaults_hold_where_a_request_says_nothing(tmp_path):
    config = {"do_sample": True, "temperature": 0.0, "repetition_penalty": 1.5, "top_k": None}
    with serving(model=with_config(tmp_path, config)) as s:
        plain = text(s, repetition_penalty=1)
        assert text(s, seed=1) == text(s, seed=2) == text(s, repetition_penalty=1.5) != plain
        assert len({text(s, temperature=1.5, seed=seed) for seed in range(3)}) > 1
        told = httpx.get(s.url + "/v1/models").json()["data"][0]["winnow"]["sampling"]
        assert told == {"temperature": 0.0, "repetition_penalty": 1.5}
        assert json.loads(s.read_log().splitlines()[0])["sampling"] == told
        answer = post(s, {"input": "Hi", "max_output_tokens": 1}, "/v1/responses").json()
        assert (answer["temperature"], answer["top_p"]) == (0.0, 1.0)
        params = httpx.get(s.url + "/props").json()["default_generation_settings"]["params"]
        assert params["repeat_penalty"] == 1.5
    with serving("--generation-config", "none", model=str(tmp_path)) as s:
        assert len({text(s, seed=seed) for seed in range(3)}) > 1
        assert text(s, temperature=0) == plain


@pytest.mark.parametrize("temperature", [{}, {"temperature": 1.5}])
def test_a_model_that_does_not_sample_is_greedy(tmp_path, temperature):
    with serving(model=with_config(tmp_path, {"do_sample": False} | temperature)) as s:
        assert text(s, seed=1) == text(s, seed=2) == text(s, temperature=0)
        assert len({text(s, temperature=1.5, seed=seed) for seed in range(3)}) > 1
        told = httpx.get(s.url + "/v1/models").json()["data"][0]["winnow"]["sampling"]
        assert told == {"temperature": 0.0}


@pytest.mark.parametrize("flags, config, message", [
    ((), {"do_sample": 0}, "generation_config.json: do_sample is 0; expected true or false"),
    ((), {"top_p": 1.5}, "generation_config.json: top_p is 1.5; expected a number from 0 to 1"),
    (("--generation-config", "x"), {}, "--generation-config x: expected auto or none"),
])
def test_what_is_out_of_range_is_named(tmp_path, flags, config, message):
    with pytest.raises(AssertionError, match=message):
        with serving(*flags, model=with_config(tmp_path, config)):
            pass
