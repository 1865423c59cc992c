"""Attention under DMS, and under the base model's far dropout.

DMS: key j is visible to query i iff j <= i and (i - j <= window or e_j == 0).

`masked` is that rule with hard decisions. `biased` is its relaxation for training: beyond the window,
key j gets the bias log(1 - alpha_j) instead of a mask. On a GPU it is FlexAttention, which reads the
bias vector in its score function, also backward, and never builds a T x T matrix.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def sample_decisions(logit: Tensor, tau: float) -> tuple[Tensor, Tensor]:
    """Gumbel-sigmoid: (alpha, log(1 - alpha)). alpha is hard forward and soft backward."""
    uniform = torch.rand_like(logit).clamp(1e-6, 1 - 1e-6)
    noisy = (logit + torch.logit(uniform)) / tau
    soft = torch.sigmoid(noisy)
    alpha = (noisy > 0).float() + soft - soft.detach()
    return alpha, F.logsigmoid(-noisy)


def align(decisions: Tensor, shift: int) -> Tensor:
    """From the token that decides to the key concerned: with shift 1, token t + 1 decides on key t."""
    return F.pad(decisions[..., shift:], (0, shift))


def distances(length: int, device) -> Tensor:
    """i - j for query i and key j."""
    position = torch.arange(length, device=device)
    return position[:, None] - position[None, :]


def masked(q: Tensor, k: Tensor, v: Tensor, evicted: Tensor, window: int) -> Tensor:
    distance = distances(q.shape[2], q.device)
    visible = (distance >= 0) & ((distance <= window) | (evicted == 0)[:, :, None, :])
    visible = visible.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=visible, enable_gqa=True)


def biased_reference(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, window: int) -> Tensor:
    """The definition, with the T x T matrix."""
    distance = distances(q.shape[2], q.device)
    full = torch.where(distance > window, bias[:, :, None, :], 0.0).masked_fill(distance < 0, -torch.inf)
    full = full.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=full.to(q.dtype), enable_gqa=True)


def partly_local(q: Tensor, k: Tensor, v: Tensor, local: Tensor, window: int, blocks=None) -> Tensor:
    """Causal attention in which KV heads with `local` [batch, KV head] see only the window."""
    group = q.shape[1] // k.shape[1]
    if blocks is None:
        distance = distances(q.shape[2], q.device)
        visible = (distance >= 0) & ((distance <= window) | ~local[:, :, None, None])
        visible = visible.repeat_interleave(group, dim=1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=visible, enable_gqa=True)

    def hide_far(score, b, h, i, j):
        return torch.where((i - j > window) & local[b, h // group], -float("inf"), score)

    return flex_attention(q, k, v, score_mod=hide_far, block_mask=blocks, enable_gqa=True)


def causal_blocks(length: int, device):
    return create_block_mask(lambda b, h, i, j: i >= j, None, None, length, length, device=device)


def biased(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, window: int, blocks=None) -> Tensor:
    """`blocks`: the causal block mask on a GPU; without it, the reference."""
    if blocks is None:
        return biased_reference(q, k, v, bias, window)
    group = q.shape[1] // k.shape[1]

    def add_bias(score, b, h, i, j):
        return score + torch.where(i - j > window, bias[b, h // group, j], 0.0)

    return flex_attention(q, k, v, score_mod=add_bias, block_mask=blocks, enable_gqa=True)
