"""Reads and writes Hugging Face model directories: config.json and model.safetensors in bf16."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from model import Config, Dms, Llama

TOKENIZER_FILES = ["tokenizer.json", "tokenizer_config.json"]


def borrowed_rows(config: Config) -> list[int]:
    """Rows of q_proj.weight that hold the decisions: one channel of the first query head of each group."""
    group = config.heads // config.kv_heads
    channel = config.dms.channel % config.head_dim
    return [head * group * config.head_dim + channel for head in range(config.kv_heads)]


def config_json(config: Config, target_cr: float | None) -> dict:
    fields = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": config.max_positions,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "torch_dtype": "bfloat16",
    }
    if dms := config.dms:
        fields |= {
            "dms_window_size": dms.window,
            "dms_alpha_scale": dms.scale,
            "dms_initial_alpha_offset": dms.offset,
            "dms_separate_alpha": False,
            "dms_alpha_per": "head",
            "dms_cr": target_cr,
            "dms_tau": dms.tau,
            "dms_decision_shift": dms.shift,
            "dms_borrowed_channel": dms.channel,
            "dms_rezero_after_rope": True,
        }
    return fields


def save(model: Llama, out: Path, tokenizer: Path, target_cr: float | None = None) -> None:
    out.mkdir(parents=True, exist_ok=True)
    state = {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}
    if model.config.dms:
        for layer in range(model.config.layers):
            prefix = f"model.layers.{layer}.self_attn."
            state[prefix + "q_proj.weight"][borrowed_rows(model.config)] = state.pop(prefix + "dms_row")
    state = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in state.items()}
    save_file(state, out / "model.safetensors", metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(config_json(model.config, target_cr), indent=2) + "\n")
    generation = {"bos_token_id": 0, "eos_token_id": 1, "do_sample": False}
    (out / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    for name in TOKENIZER_FILES:
        shutil.copyfile(tokenizer / name, out / name)


def read_config(path: Path) -> Config:
    fields = json.loads((path / "config.json").read_text())
    dms = None
    if "dms_window_size" in fields:
        dms = Dms(
            window=fields["dms_window_size"],
            scale=fields["dms_alpha_scale"],
            offset=fields["dms_initial_alpha_offset"],
            tau=fields.get("dms_tau", 0.1),  # the temperature of training, which winnow does not write
            shift=fields["dms_decision_shift"],
            channel=fields["dms_borrowed_channel"],
        )
    return Config(
        vocab_size=fields["vocab_size"],
        hidden_size=fields["hidden_size"],
        intermediate_size=fields["intermediate_size"],
        layers=fields["num_hidden_layers"],
        heads=fields["num_attention_heads"],
        kv_heads=fields["num_key_value_heads"],
        head_dim=fields["head_dim"],
        rope_theta=fields["rope_theta"],
        norm_eps=fields["rms_norm_eps"],
        max_positions=fields["max_position_embeddings"],
        dms=dms,
    )


def load(path: Path, retrofit: Dms | None = None) -> Llama:
    """A model in float32. With `retrofit`, a dense model becomes a DMS model that decides nothing yet."""
    config = read_config(path)
    state = {name: tensor.float() for name, tensor in load_file(path / "model.safetensors").items()}
    fresh = retrofit is not None and config.dms is None
    config.dms = config.dms or retrofit
    if config.dms:
        for layer in range(config.layers):
            prefix = f"model.layers.{layer}.self_attn."
            rows = state[prefix + "q_proj.weight"][borrowed_rows(config)]
            state[prefix + "dms_row"] = torch.zeros_like(rows) if fresh else rows.clone()
    model = Llama(config)
    model.load_state_dict(state)
    return model
