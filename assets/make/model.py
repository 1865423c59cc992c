"""A Llama with grouped-query attention and, optionally, Dynamic Memory Sparsification (DMS).

Parameter names are those of Hugging Face's LlamaForCausalLM, so that a state dict needs no mapping.
With DMS, attention also holds `dms_row`: the query-projection row of the borrowed channel of each
group. It is kept apart while training (it wants its own learning rate) and takes its place in
`q_proj.weight` on export.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import attention


FAR_DROPOUT_WINDOW = 64


@dataclass
class Dms:
    window: int = 64
    scale: float = 100.0
    offset: float = 5.0
    tau: float = 0.1
    shift: int = 1
    channel: int = -1


@dataclass
class Config:
    vocab_size: int = 8192
    hidden_size: int = 384
    intermediate_size: int = 896
    layers: int = 8
    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 64
    rope_theta: float = 100_000.0
    norm_eps: float = 1e-5
    max_positions: int = 4096
    dms: Dms | None = None


class Decisions(NamedTuple):
    """[layer, batch, KV head, token], or one layer's."""

    alpha: Tensor
    logit: Tensor


def rope_table(config: Config, length: int, device) -> tuple[Tensor, Tensor]:
    exponents = torch.arange(0, config.head_dim, 2, device=device, dtype=torch.float32) / config.head_dim
    angles = torch.outer(torch.arange(length, device=device, dtype=torch.float32), config.rope_theta**-exponents)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    cos, sin = rope
    first, second = x.float().chunk(2, dim=-1)
    return (x.float() * cos + torch.cat([-second, first], dim=-1) * sin).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        width, head_dim = config.hidden_size, config.head_dim
        self.q_proj = nn.Linear(width, config.heads * head_dim, bias=False)
        self.k_proj = nn.Linear(width, config.kv_heads * head_dim, bias=False)
        self.v_proj = nn.Linear(width, config.kv_heads * head_dim, bias=False)
        self.o_proj = nn.Linear(config.heads * head_dim, width, bias=False)
        if config.dms:
            self.dms_row = nn.Parameter(torch.zeros(config.kv_heads, width))
            keep = torch.ones(config.heads, 1, head_dim)
            keep[:: config.heads // config.kv_heads, 0, config.dms.channel] = 0
            self.register_buffer("borrowed", 1 - keep, persistent=False)

    def forward(self, x: Tensor, rope, fade: Tensor | float, blocks, local: Tensor | None) -> tuple[Tensor, Decisions | None]:
        batch, length, _ = x.shape
        q, k, v = (
            proj(x).view(batch, length, -1, self.config.head_dim).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        dms = self.config.dms
        if dms is None:
            q, k = rotate(q, rope), rotate(k, rope)
            if local is None:
                out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            else:
                out = attention.partly_local(q, k, v, local, FAR_DROPOUT_WINDOW, blocks)
            return self.o_proj(out.transpose(1, 2).reshape(batch, length, -1)), None

        # The borrowed channel carries the decision, so attention must not see it: before RoPE, and
        # after RoPE, which turns its partner channel into it. `fade` goes from 1 to 0 in phase 1.
        mute = (1 - (1 - fade) * self.borrowed).to(q.dtype)
        q, k = rotate(q * mute, rope) * mute, rotate(k, rope)
        with torch.autocast(x.device.type, enabled=False):
            logit = dms.scale * F.linear(x.float(), self.dms_row.float()).transpose(1, 2) - dms.offset
        if self.training:
            alpha, bias = attention.sample_decisions(logit, dms.tau)
            out = attention.biased(q, k, v, attention.align(bias, dms.shift), dms.window, blocks)
        else:
            alpha = (logit > 0).float()
            out = attention.masked(q, k, v, attention.align(alpha, dms.shift), dms.window)
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, -1)), Decisions(alpha, logit)


class Mlp(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.mlp = Mlp(config)

    def forward(self, x: Tensor, rope, fade, blocks, local) -> tuple[Tensor, Decisions | None]:
        attended, decisions = self.self_attn(self.input_layernorm(x), rope, fade, blocks, local)
        x = x + attended
        return x + self.mlp(self.post_attention_layernorm(x)), decisions


class Decoder(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)


class Llama(nn.Module):
    """Input and output embeddings are tied."""

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.model = Decoder(config)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2 and "dms_row" not in name:
                scaled = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * config.layers) ** 0.5 if scaled else 0.02)

    def hidden(
        self, tokens: Tensor, fade: Tensor | float = 0.0, blocks=None, local: Tensor | None = None
    ) -> tuple[Tensor, Decisions | None]:
        """Final hidden states, and the decisions of a DMS model. `local` [layer, batch, KV head]: far dropout."""
        x = self.model.embed_tokens(tokens)
        rope = rope_table(self.config, tokens.shape[1], tokens.device)
        decisions = []
        for index, layer in enumerate(self.model.layers):
            x, decided = layer(x, rope, fade, blocks, None if local is None else local[index])
            decisions.append(decided)
        return self.model.norm(x), Decisions(*map(torch.stack, zip(*decisions))) if self.config.dms else None

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.model.embed_tokens.weight).float()

    def forward(
        self, tokens: Tensor, fade: Tensor | float = 0.0, blocks=None, local: Tensor | None = None
    ) -> tuple[Tensor, Decisions | None]:
        hidden, decisions = self.hidden(tokens, fade, blocks, local)
        return self.logits(hidden), decisions
