"""LoRA adapters: chosen by the model's name, side by side with the model itself."""
import concurrent.futures
import json
import random
import struct

import httpx
import pytest
from conftest import MODEL, logged, serving
from test_http import post

RANK, HIDDEN, LAYERS = 4, 384, 8


def write_adapter(folder, scale, modules=("self_attn.q_proj", "mlp.down_proj"), **config):
    """As PEFT writes it. With a scale of 0 it adds nothing."""
    folder.mkdir()
    shapes = {"self_attn.q_proj": (384, HIDDEN), "mlp.down_proj": (HIDDEN, 896),
              "mlp.other_proj": (5, 5)}
    header, data, dice = {}, b"", random.Random(1)
    for layer in range(LAYERS):
        for module in modules:
            out, width = shapes[module]
            for half, shape, size in (("A", (RANK, width), 1.0), ("B", (out, RANK), scale)):
                values = [dice.uniform(-1, 1) * size for _ in range(shape[0] * shape[1])]
                name = f"base_model.model.model.layers.{layer}.{module}.lora_{half}.weight"
                header[name] = {"dtype": "F32", "shape": shape,
                                "data_offsets": [len(data), len(data) + 4 * len(values)]}
                data += struct.pack(f"<{len(values)}f", *values)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": RANK, "lora_alpha": 8, "bias": "none"} | config))
    return str(folder)


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapters")
    with serving("--deterministic", "--lora", "loud=" + write_adapter(folder / "loud", 0.05),
                 "--lora", "nothing=" + write_adapter(folder / "nothing", 0.0)) as s:
        yield s


def text(server, model, prompt="The sea was calm, and", **fields):
    answer = post(server, {"model": model, "prompt": prompt, "max_tokens": 12,
                           "temperature": 0} | fields)
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == model
    return answer.json()["choices"][0]["text"]


def test_the_name_chooses(adapted):
    names = [m["id"] for m in httpx.get(adapted.url + "/v1/models").json()["data"]]
    assert names == [MODEL, "loud", "nothing"]
    plain = text(adapted, MODEL)
    assert text(adapted, "nothing") == plain
    loud = text(adapted, "loud")
    assert loud != plain
    # The prefixes that one leaves are not the other's.
    assert text(adapted, MODEL) == plain and text(adapted, "loud") == loud
    assert post(adapted, {"model": "quiet", "prompt": "a"}).status_code == 404


def test_all_in_one_batch(adapted):
    wanted = {model: text(adapted, model) for model in (MODEL, "loud", "nothing")}
    with concurrent.futures.ThreadPoolExecutor(9) as pool:
        asked = [MODEL, "loud", "nothing"] * 3
        assert list(pool.map(lambda m: text(adapted, m), asked)) == [wanted[m] for m in asked]


def test_prefixes_are_of_one_adapter(adapted):
    prompt = "The harbour lay in fog, and the men waited for the morning. " * 12
    def cached(model):
        return post(adapted, {"model": model, "prompt": prompt, "max_tokens": 4}).json()["usage"][
            "prompt_tokens_details"]["cached_tokens"]
    # A state is left where two prompts part, so the third one finds it.
    assert [cached("loud"), cached("loud"), cached(MODEL), cached("nothing")] == [0, 0, 0, 0]
    assert cached("loud") > 64 and cached(MODEL) == 0
    fresh = text(adapted, "loud", prompt + "Then")  # from its prefix, as --deterministic is
    assert fresh == text(adapted, "loud", prompt + "Then", logprobs=0, echo=True)[len(prompt) + 4:]


def test_chats_use_them_too(adapted):
    body = {"messages": [{"role": "user", "content": "Tell me of the sea."}], "max_tokens": 12,
            "temperature": 0}
    said = {m: post(adapted, body | {"model": m}, "/v1/chat/completions").json()["choices"][0][
        "message"]["content"] for m in (MODEL, "loud", "nothing")}
    assert said[MODEL] == said["nothing"] != said["loud"]


def test_what_cannot_be_used_is_named(tmp_path):
    for flag, message in (
            ("dora=" + write_adapter(tmp_path / "dora", 0.1, use_dora=True), "use_dora is true"),
            ("other=" + write_adapter(tmp_path / "other", 0.1, modules=["mlp.other_proj"]),
             "has no place in this model"),
            (MODEL + "=" + str(tmp_path / "dora"), "there is a model"), ("x", "expected NAME=DIR")):
        with pytest.raises(AssertionError, match=message):
            with serving("--lora", flag):
                pass


def test_an_adapter_of_another_model_is_named(tmp_path):
    def warnings(name, base, *flags):
        adapter = write_adapter(tmp_path / name, 0.1, base_model_name_or_path=base)
        with serving("--lora", f"{name}={adapter}", *flags) as s:
            return [line["message"] for line in logged(s, "lora")]
    said = warnings("other", "Qwen/Qwen3-8B")
    assert len(said) == 1 and "made for Qwen/Qwen3-8B" in said[0] and MODEL in said[0]
    assert warnings("own", "some/" + MODEL) == warnings("unnamed", None) == []
    assert warnings("aliased", "Qwen/Qwen3-8B", "--model-alias", "Qwen/Qwen3-8B") == []
