"""Writes gguf_names.json: the names that llama.cpp's converter gives to tensors of models, as PyPI's
gguf has them, by llama.cpp's architecture and transformers' name.

    pip install gguf && python tests/model/make_gguf_names.py
"""
import json
import pathlib

import gguf

LAYERS = 2
ENDS = ["model.embed_tokens", "model.norm", "lm_head"]
PARTS = [
    "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
    "post_feedforward_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
    "self_attn.o_proj", "self_attn.qkv_proj", "self_attn.q_norm", "self_attn.k_norm",
    "self_attn.sinks", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "mlp.gate_up_proj",
    "mlp.gate", "mlp.router", "mlp.experts.gate_proj", "mlp.experts.up_proj",
    "mlp.experts.down_proj", "mlp.shared_expert.gate_proj", "mlp.shared_expert.up_proj",
    "mlp.shared_expert.down_proj", "mlp.shared_expert_gate", "block_sparse_moe.gate",
    "block_sparse_moe.experts.w1", "block_sparse_moe.experts.w2", "block_sparse_moe.experts.w3",
]
ARCHITECTURES = ["arcee", "exaone4", "gemma", "gemma2", "gemma3", "gpt-oss", "granite", "llama",
                 "mistral3", "olmo2", "phi3", "qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen3moe",
                 "qwen3vl", "qwen3vlmoe", "seed_oss", "smollm3"]


def names_of(architecture):
    key = next(a for a, n in gguf.MODEL_ARCH_NAMES.items() if n == architecture)
    table = gguf.get_tensor_name_map(key, LAYERS)
    names = ENDS + [f"model.layers.{i}.{part}" for i in range(LAYERS) for part in PARTS]
    found = {name: table.get_name(name) for name in names}
    return {name: to for name, to in found.items() if to}


if __name__ == "__main__":
    table = {architecture: names_of(architecture) for architecture in ARCHITECTURES}
    path = pathlib.Path(__file__).with_name("gguf_names.json")
    path.write_text(json.dumps(table, indent=0) + "\n")
