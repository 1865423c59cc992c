#!/usr/bin/env python3
"""Writes a model directory of Llama-3.2-1B's shape with random weights, for benchmarks of the server.

  benchmarks/random_checkpoint.py DIR --cr 8 --tokens 5000

The tokenizer is the demo model's with names for the other ids. With --cr the model decides by DMS with a
window of 256: q's last channel is a normal variate, so the offset of the decision sets how often a token is
evicted, and a sequence of --tokens tokens is compressed by --cr."""
import argparse
import json
import pathlib
import statistics
import struct

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, INNER, VOCAB = 2048, 16, 32, 8, 64, 8192, 128256
STD = 0.02
WINDOW = 256


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--cr", type=float, help="default: a dense model")
    parser.add_argument("--tokens", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def shapes():
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    yield "model.norm.weight", (HIDDEN,)
    for layer in range(LAYERS):
        name = f"model.layers.{layer}."
        yield name + "input_layernorm.weight", (HIDDEN,)
        yield name + "post_attention_layernorm.weight", (HIDDEN,)
        yield name + "self_attn.q_proj.weight", (HEADS * HEAD_DIM, HIDDEN)
        yield name + "self_attn.k_proj.weight", (KV_HEADS * HEAD_DIM, HIDDEN)
        yield name + "self_attn.v_proj.weight", (KV_HEADS * HEAD_DIM, HIDDEN)
        yield name + "self_attn.o_proj.weight", (HIDDEN, HEADS * HEAD_DIM)
        yield name + "mlp.gate_proj.weight", (INNER, HIDDEN)
        yield name + "mlp.up_proj.weight", (INNER, HIDDEN)
        yield name + "mlp.down_proj.weight", (HIDDEN, INNER)


def to_bf16(values):
    return (values.astype("<f4").view("<u4") >> 16).astype("<u2")


def write_weights(path, seed):
    header, offset = {}, 0
    for name, shape in shapes():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    rng = np.random.default_rng(seed)
    normal = to_bf16(rng.standard_normal((1 << 24) + 1, dtype=np.float32) * STD)  # repeated: enough for a benchmark
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, shape in shapes():
            count = int(np.prod(shape))
            if len(shape) == 1:
                file.write(to_bf16(np.ones(count)).tobytes())
                continue
            begin = int(rng.integers(len(normal)))
            file.write(np.resize(np.roll(normal, -begin), count).tobytes())


def dms(cr, tokens):
    kept = (tokens / cr - WINDOW - 1) / (tokens - WINDOW - 1)
    spread = STD * HIDDEN ** 0.5  # of q, as its input has a root mean square of 1
    return {"dms_window_size": WINDOW, "dms_alpha_scale": 100.0, "dms_separate_alpha": False, "dms_cr": cr,
            "dms_initial_alpha_offset": 100 * spread * statistics.NormalDist().inv_cdf(kept)}


def main():
    args = arguments()
    args.directory.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCAB, "hidden_size": HIDDEN,
        "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "hidden_act": "silu", "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": True, "bos_token_id": 0, "eos_token_id": 1,
        "torch_dtype": "bfloat16"} | (dms(args.cr, args.tokens) if args.cr else {})
    (args.directory / "config.json").write_text(json.dumps(config, indent=1))
    demo = ROOT / "assets/dms-cr8"
    tokenizer = json.loads((demo / "tokenizer.json").read_text())
    words = tokenizer["model"]["vocab"]
    words |= {f"<{i}>": i for i in range(len(words), VOCAB)}
    (args.directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    (args.directory / "tokenizer_config.json").write_text((demo / "tokenizer_config.json").read_text())
    write_weights(args.directory / "model.safetensors", args.seed)


if __name__ == "__main__":
    main()
