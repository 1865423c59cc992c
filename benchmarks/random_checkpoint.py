#!/usr/bin/env python3
"""Writes a model directory of a known shape with random weights, for benchmarks of the server.

  benchmarks/random_checkpoint.py DIR --shape llama-3.2-1b --cr 8 --tokens 3000

The tokenizer is the demo model's with names for the other ids. With --cr the model decides by DMS: q's last
channel is a normal variate, so the offset of the decision sets how often a token is evicted, and a sequence of
--tokens tokens is compressed by --cr."""
import argparse
import dataclasses
import json
import pathlib
import statistics
import struct

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
STD = 0.02


@dataclasses.dataclass
class Shape:
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocab: int
    tied: bool


SHAPES = {
    "llama-3.2-1b": Shape(2048, 16, 32, 8, 64, 8192, 128256, True),
    "llama-3.1-8b": Shape(4096, 32, 32, 8, 128, 14336, 128256, False),
    "tiny": Shape(256, 2, 4, 2, 64, 512, 8192, True),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--shape", choices=SHAPES, default="llama-3.2-1b")
    parser.add_argument("--cr", type=float, help="default: a dense model")
    parser.add_argument("--tokens", type=int, default=3000)
    parser.add_argument("--window", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def tensors(shape):
    yield "model.embed_tokens.weight", (shape.vocab, shape.hidden)
    yield "model.norm.weight", (shape.hidden,)
    if not shape.tied:
        yield "lm_head.weight", (shape.vocab, shape.hidden)
    for layer in range(shape.layers):
        name = f"model.layers.{layer}."
        yield name + "input_layernorm.weight", (shape.hidden,)
        yield name + "post_attention_layernorm.weight", (shape.hidden,)
        yield name + "self_attn.q_proj.weight", (shape.heads * shape.head_dim, shape.hidden)
        yield name + "self_attn.k_proj.weight", (shape.kv_heads * shape.head_dim, shape.hidden)
        yield name + "self_attn.v_proj.weight", (shape.kv_heads * shape.head_dim, shape.hidden)
        yield name + "self_attn.o_proj.weight", (shape.hidden, shape.heads * shape.head_dim)
        yield name + "mlp.gate_proj.weight", (shape.inner, shape.hidden)
        yield name + "mlp.up_proj.weight", (shape.inner, shape.hidden)
        yield name + "mlp.down_proj.weight", (shape.hidden, shape.inner)


def to_bf16(values):
    return (values.astype("<f4").view("<u4") >> 16).astype("<u2")


def random_normal(seed):
    """Returns a function that writes `count` normal variates in bf16 to a file."""
    rng = np.random.default_rng(seed)
    # Of an odd length, repeated from a random place: enough for a benchmark.
    normal = to_bf16(rng.standard_normal((1 << 24) + 1, dtype=np.float32) * STD)

    def draw(file, count):
        begin = int(rng.integers(len(normal)))
        while count > 0:
            piece = normal[begin:begin + count]
            file.write(piece.data)
            count -= len(piece)
            begin = 0

    return draw


def write_weights(path, shape, seed):
    header, offset = {}, 0
    for name, dims in tensors(shape):
        size = 2 * int(np.prod(dims))
        header[name] = {"dtype": "BF16", "shape": list(dims), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    draw = random_normal(seed)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, dims in tensors(shape):
            if len(dims) == 1:
                file.write(to_bf16(np.ones(dims)).tobytes())
            else:
                draw(file, int(np.prod(dims)))


def dms(shape, cr, tokens, window):
    kept = (tokens / cr - window - 1) / (tokens - window - 1)
    if not 0 < kept < 1:
        raise SystemExit(f"--cr {cr}: {tokens} tokens cannot be {tokens / cr:.0f} with a window of {window}")
    spread = STD * shape.hidden ** 0.5  # of q, as its input has a root mean square of 1
    return {"dms_window_size": window, "dms_alpha_scale": 100.0, "dms_separate_alpha": False, "dms_cr": cr,
            "dms_initial_alpha_offset": 100 * spread * statistics.NormalDist().inv_cdf(kept)}


def main():
    args = arguments()
    shape = SHAPES[args.shape]
    args.directory.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": shape.vocab,
        "hidden_size": shape.hidden, "intermediate_size": shape.inner, "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_dim,
        "hidden_act": "silu", "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
        "tie_word_embeddings": shape.tied, "bos_token_id": 0, "eos_token_id": 1, "torch_dtype": "bfloat16"}
    if args.cr:
        config |= dms(shape, args.cr, args.tokens, args.window)
    (args.directory / "config.json").write_text(json.dumps(config, indent=1))
    demo = ROOT / "assets/dms-cr8"
    tokenizer = json.loads((demo / "tokenizer.json").read_text())
    words = tokenizer["model"]["vocab"]
    words |= {f"<{i}>": i for i in range(len(words), shape.vocab)}
    (args.directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    (args.directory / "tokenizer_config.json").write_text((demo / "tokenizer_config.json").read_text())
    write_weights(args.directory / "model.safetensors", shape, args.seed)


if __name__ == "__main__":
    main()
