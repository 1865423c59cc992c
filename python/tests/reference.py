"""A Llama in numpy and float64, dense, with DMS or streaming, straight from docs/method.md."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np


def read_bf16(file: Path) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file of bf16, as float64."""
    data = file.read_bytes()
    size = int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "BF16"
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        halves = np.frombuffer(data[begin:end], np.uint16).astype(np.uint32) << 16
        tensors[name] = halves.view(np.float32).astype(np.float64).reshape(entry["shape"])
    return tensors


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


@dataclass
class Result:
    logits: np.ndarray  # [T, V]
    live: np.ndarray  # [T, layers, KV heads]: entries that the query at t sees


@dataclass
class Streaming:
    """Only the first `sinks` tokens and the last `budget - sinks` are seen."""

    budget: int
    sinks: int = 4


class Reference:
    """The rule is the checkpoint's own unless another is given."""

    def __init__(self, directory: Path, rule: Streaming | None = None):
        self.rule = rule
        self.config = json.loads((directory / "config.json").read_text())
        self.tensors = read_bf16(directory / "model.safetensors")

    def __call__(self, tokens: list[int]) -> Result:
        c = self.config
        length, size = len(tokens), c["head_dim"]
        angles = np.outer(np.arange(length), c["rope_theta"] ** -(np.arange(0, size, 2) / size))
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]

        def norm(x: np.ndarray, name: str) -> np.ndarray:
            scale = np.sqrt((x * x).mean(-1, keepdims=True) + c["rms_norm_eps"])
            return x / scale * self.tensors[name]

        def rope(x: np.ndarray) -> np.ndarray:
            a, b = np.split(x, 2, axis=-1)
            return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

        x = self.tensors["model.embed_tokens.weight"][tokens]
        live = []
        for layer in range(c["num_hidden_layers"]):
            at = f"model.layers.{layer}."
            project = lambda y, name: y @ self.tensors[f"{at}{name}_proj.weight"].T
            h = norm(x, at + "input_layernorm.weight")
            q, k, v = (project(h, f"self_attn.{n}").reshape(length, -1, size) for n in "qkv")
            out, seen = self.attend(q, k, v, rope)
            live.append(seen)
            x = x + project(out.reshape(length, -1), "self_attn.o")
            h = norm(x, at + "post_attention_layernorm.weight")
            gate = project(h, "mlp.gate")
            x = x + project(gate / (1 + np.exp(-gate)) * project(h, "mlp.up"), "mlp.down")
        logits = norm(x, "model.norm.weight") @ self.tensors["model.embed_tokens.weight"].T
        return Result(logits, np.stack(live, axis=1))

    def attend(self, q, k, v, rope):  # type: ignore[no-untyped-def]
        length, heads, size = q.shape
        group = heads // k.shape[1]
        gap = np.arange(length)[:, None] - np.arange(length)
        visible = np.broadcast_to(gap >= 0, (k.shape[1], length, length))
        if self.rule is not None:
            recent = gap < self.rule.budget - self.rule.sinks
            visible = visible & (recent | (np.arange(length) < self.rule.sinks))
            q = rope(q)
        elif "dms_window_size" in self.config:
            # Key j is marked by the decision at token j + 1, read from the borrowed channel.
            q = q.copy()
            decisions = self.config["dms_alpha_scale"] * q[:, ::group, -1]
            marked = np.zeros((length, k.shape[1]), bool)
            marked[:-1] = (decisions > self.config["dms_initial_alpha_offset"])[1:]
            visible = visible & ((gap <= self.config["dms_window_size"]) | ~marked.T[:, None])
            q[:, ::group, -1] = 0
            q = rope(q)
            q[:, ::group, -1] = 0
        else:
            q = rope(q)
        k = rope(k)
        out = np.empty_like(q)
        for head in range(heads):
            scores = q[:, head] @ k[:, head // group].T / np.sqrt(size)
            scores = np.where(visible[head // group], scores, -np.inf)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, head] = weights @ v[:, head // group] / weights.sum(-1, keepdims=True)
        return out, visible.sum(-1).T
