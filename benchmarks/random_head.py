#!/usr/bin/env python3
"""Writes an EAGLE-3 head with random weights for a model of a known shape, to time drafts: it is never right.

  benchmarks/random_head.py DIR --shape llama-3.1-8b
  winnow bench --shape llama-3.1-8b --draft-model DIR --speculate model:3 --depth 1024 --prefill 1024 --device cuda"""
import argparse
import json
import pathlib
import struct

import numpy as np

from random_checkpoint import SHAPES, random_normal, to_bf16


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--shape", choices=SHAPES, default="llama-3.1-8b")
    parser.add_argument("--draft-vocab", type=int, default=32000, help="tokens that it can draft")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def tensors(shape, drafted):
    hidden, layer = shape.hidden, "midlayer."
    yield "fc.weight", (hidden, 3 * hidden)
    for norm in ("input_layernorm", "hidden_norm", "post_attention_layernorm"):
        yield f"{layer}{norm}.weight", (hidden,)
    yield layer + "self_attn.q_proj.weight", (shape.heads * shape.head_dim, 2 * hidden)
    yield layer + "self_attn.k_proj.weight", (shape.kv_heads * shape.head_dim, 2 * hidden)
    yield layer + "self_attn.v_proj.weight", (shape.kv_heads * shape.head_dim, 2 * hidden)
    yield layer + "self_attn.o_proj.weight", (hidden, shape.heads * shape.head_dim)
    yield layer + "mlp.gate_proj.weight", (shape.inner, hidden)
    yield layer + "mlp.up_proj.weight", (shape.inner, hidden)
    yield layer + "mlp.down_proj.weight", (hidden, shape.inner)
    yield "norm.weight", (hidden,)
    yield "lm_head.weight", (drafted, hidden)


def config_of(shape, drafted):
    return {
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": shape.hidden,
        "intermediate_size": shape.inner, "num_hidden_layers": 1, "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_dim, "vocab_size": shape.vocab,
        "draft_vocab_size": drafted, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "eagle_aux_hidden_state_layer_ids": [min(2, shape.layers - 1), shape.layers // 2, max(shape.layers - 3, 0)]}


def main():
    args = arguments()
    shape = SHAPES[args.shape]
    drafted = min(args.draft_vocab, shape.vocab)
    args.directory.mkdir(parents=True, exist_ok=True)
    (args.directory / "config.json").write_text(json.dumps(config_of(shape, drafted), indent=1))
    header, offset = {}, 0
    for name, dims in tensors(shape, drafted):
        size = 2 * int(np.prod(dims))
        header[name] = {"dtype": "BF16", "shape": list(dims), "data_offsets": [offset, offset + size]}
        offset += size
    header["d2t"] = {"dtype": "I64", "shape": [drafted], "data_offsets": [offset, offset + 8 * drafted]}
    text = json.dumps(header).encode()
    draw = random_normal(args.seed)
    places = np.arange(drafted, dtype=np.int64)
    with (args.directory / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, dims in tensors(shape, drafted):
            if len(dims) == 1:
                file.write(to_bf16(np.ones(dims)).tobytes())
            else:
                draw(file, int(np.prod(dims)))
        file.write((places * shape.vocab // drafted - places).tobytes())


if __name__ == "__main__":
    main()
