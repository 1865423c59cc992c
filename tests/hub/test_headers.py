"""winnow inspect of a name that is not in the cache: it reads headers, and says what it would say of
the whole model."""
import json
import math
import os
import struct

import pytest

from hub_server import Faults, Repository
from test_pull import (NAME, ROOT, WEIGHTS, environment, expect_error, home, hub, pull, ranges,  # noqa: F401
                       winnow)

LARGE = 256 << 20  # bytes of the weights of a large model here


def files_of(model):
    folder = ROOT / "tests/fixtures" / model
    paths = [folder] if folder.is_file() else sorted(folder.iterdir())
    return {path.name: path.read_bytes() for path in paths if path.is_file()}


def without_values(name, data):
    """Zeros in place of what winnow should not read: small files come whole with their header."""
    if name.endswith(".safetensors"):
        begin = 8 + struct.unpack("<Q", data[:8])[0]
    elif name.endswith(".gguf"):
        begin = len(data) // 2  # the header of a tiny model's file is shorter
    else:
        return data
    return data[:begin] + bytes(len(data) - begin)


def inspected(model, env):
    result = winnow("inspect", model, "--json", "--memory-gib", "16", env=env)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def large_model():
    """A model whose embeddings fill LARGE bytes, in zeros."""
    files = files_of("models/llama")
    vocab, hidden = LARGE // 2 // 512, 512
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden,
              "intermediate_size": 512, "num_attention_heads": 8, "num_hidden_layers": 1,
              "vocab_size": vocab, "tie_word_embeddings": True, "max_position_embeddings": 1024,
              "torch_dtype": "bfloat16"}
    layer = "model.layers.0."
    shapes = {"model.embed_tokens.weight": [vocab, hidden], "model.norm.weight": [hidden],
              layer + "input_layernorm.weight": [hidden],
              layer + "post_attention_layernorm.weight": [hidden]}
    shapes |= {f"{layer}self_attn.{p}_proj.weight": [hidden, hidden] for p in "qkvo"}
    shapes |= {f"{layer}mlp.{p}_proj.weight": [512, 512] for p in ("gate", "up", "down")}
    return {"config.json": json.dumps(config).encode(), WEIGHTS: safetensors(shapes, "BF16", 2),
            "tokenizer.json": files.get("tokenizer.json", b"{}")}


def safetensors(shapes, kind, size):
    header, at = {}, 0
    for name, shape in shapes.items():
        count = size * math.prod(shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + count]}
        at += count
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(at)


def gguf_text(text):
    return struct.pack("<Q", len(text)) + text.encode()


def large_gguf():
    """A llama whose divisors of RoPE's frequencies, all 1, come after 80 MiB of embeddings."""
    f32, u32 = 6, 4  # ggml's numbers of value types
    keys = {"embedding_length": (u32, 32), "block_count": (u32, 1), "feed_forward_length": (u32, 64),
            "attention.head_count": (u32, 4), "context_length": (u32, 1024),
            "attention.layer_norm_rms_epsilon": (f32, 1e-6)}
    meta = gguf_text("general.architecture") + struct.pack("<I", 8) + gguf_text("llama")
    for key, (kind, value) in keys.items():
        meta += gguf_text("llama." + key) + struct.pack("<If" if kind == f32 else "<II", kind, value)
    shapes = {"token_embd.weight": [32, (80 << 20) // 128], "rope_freqs.weight": [4],
              "output_norm.weight": [32], "blk.0.attn_norm.weight": [32], "blk.0.ffn_norm.weight": [32]}
    shapes |= {f"blk.0.attn_{n}.weight": [32, 32] for n in ("q", "k", "v", "output")}
    shapes |= {"blk.0.ffn_gate.weight": [32, 64], "blk.0.ffn_up.weight": [32, 64],
               "blk.0.ffn_down.weight": [64, 32]}
    infos, data = b"", b""
    for name, shape in shapes.items():
        infos += gguf_text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data))
        values = (struct.pack("<4f", 1, 1, 1, 1) if name.startswith("rope")
                  else bytes(4 * math.prod(shape)))
        data += values + bytes(-len(values) % 32)
    header = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(keys) + 1) + meta + infos
    return header + bytes(-len(header) % 32) + data


@pytest.mark.parametrize("model", ["models/llama", "models/llama-fp16-sharded", "models/gpt-oss",
                                   "models/qwen3.5", "models/gemma3-whole",
                                   "models/dms-nvidia-llama", "gguf/qwen3.5.gguf",
                                   "gguf/qwen3-next.gguf"])
def test_headers_tell_what_the_whole_model_tells(hub, home, tmp_path, model):
    files = {name: without_values(name, data) for name, data in files_of(model).items()}
    hub.repositories[NAME] = Repository(files)
    known = inspected(NAME, environment(home, hub, TMPDIR=str(tmp_path)))
    whole = inspected(str(ROOT / "tests/fixtures" / model), environment(home))
    assert whole.pop("headers_only") is None
    read = known.pop("headers_only")
    assert "tokenizer" in whole.pop("tokenizer_error")  # no fixture has one
    assert known.pop("tokenizer_error") is None  # of a model elsewhere it is not read
    assert known == whole
    assert 0 < read["read_bytes"] <= read["total_bytes"]
    assert not list(home.rglob("*")) and not list(tmp_path.glob("winnow-*"))


@pytest.mark.parametrize("ignore_ranges", [False, True])
def test_values_stay_where_they_are(hub, home, ignore_ranges):
    files = large_model()
    hub.repositories[NAME] = Repository(files)
    hub.faults.ignore_ranges = ignore_ranges
    result = winnow("inspect", NAME, env=environment(home, hub))
    assert result.returncode == 0, result.stderr
    assert f"; winnow pull {NAME} downloads the model.\n" in result.stdout
    assert "Only configuration and headers were read, 25" in result.stdout  # 256 KiB, and a little
    assert hub.sent < LARGE // 8  # sockets have buffers
    assert not any("tokenizer" in path for path in hub.requests() + hub.requests("HEAD"))
    assert set(ranges(hub)) == {"bytes=0-262143"}


def test_values_that_describe_a_model_are_read(hub, home):
    hub.repositories[NAME] = Repository({"large.gguf": large_gguf()})
    env = environment(home, hub)
    assert inspected(NAME, env)["architecture"] == "llama"
    assert hub.sent < 1 << 20
    assert len(set(ranges(hub))) == 2
    hub.faults.ignore_ranges = True
    expect_error(winnow("inspect", NAME, env=env), "the server ignores ranges")


def test_a_long_header_is_read_to_its_end(hub, home):
    files = files_of("models/llama")
    length, = struct.unpack("<Q", files[WEIGHTS][:8])
    data = files[WEIGHTS][8 + length:]
    text = files[WEIGHTS][8:8 + length].ljust(1 << 20)
    files[WEIGHTS] = struct.pack("<Q", len(text)) + text + data
    hub.repositories[NAME] = Repository(files)
    inspected(NAME, environment(home, hub))
    assert "bytes=262144-1048583" in ranges(hub)


def test_broken_transfers_are_repeated(hub, home):
    hub.faults = Faults(break_after=1000, breaks=3)
    assert inspected(NAME, environment(home, hub))["layers"] > 0


def test_a_model_in_the_cache_is_used(hub, home):
    assert pull(home, hub).returncode == 0
    count = len(hub.requests() + hub.requests("HEAD"))
    assert inspected(NAME, environment(home, hub))["headers_only"] is None
    assert len(hub.requests() + hub.requests("HEAD")) == count


def test_damage_is_told_by_the_models_name(hub, home, tmp_path):
    files = files_of("models/llama")
    hub.repositories[NAME] = Repository({**files, WEIGHTS: b"\xff" * 100})
    env = environment(home, hub, TMPDIR=str(tmp_path))
    expect_error(winnow("inspect", NAME, env=env), "header length")
    hub.repositories[NAME] = Repository({**files, "config.json": b"{}"})
    result = winnow("inspect", NAME, env=env)
    expect_error(result, f"error: {NAME}/config.json: ")
    hub.repositories[NAME] = Repository({"a.gguf": b"GGUF" + bytes(100)})
    expect_error(winnow("inspect", NAME, env=env), "a.gguf: GGUF version 0")
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("tensor, kind, size", [("model.layers.0.mlp.up_proj.qweight", "I32", 4),
                                                ("model.layers.0.mlp.up_proj.weight", "I8", 1)])
def test_what_values_decide_is_refused(hub, home, tensor, kind, size):
    files = files_of("models/llama")
    files[WEIGHTS] = safetensors({tensor: [32, 32]}, kind, size)
    hub.repositories[NAME] = Repository(files)
    expect_error(winnow("inspect", NAME, env=environment(home, hub)), f'"{tensor}"',
                 "on their values; download them: winnow pull " + NAME)
