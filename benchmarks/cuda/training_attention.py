"""Times PyTorch's training attention at the shapes of training_attention_cuda_benchmark.

    python3 training_attention.py [--flex] [--output FILE]

Dense causal scaled_dot_product_attention with each of its fused backends, which know no DMS; with
--flex also FlexAttention with DMS's bias, as in NVIDIA's recipe and with a causal block mask as well.
Medians of milliseconds forward, and forward with backward.
"""
import argparse
import json
import math
import statistics
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

TOKENS, HEADS, KV_HEADS, WINDOW = 16384, 32, 8, 256


def median_ms(function, samples: int) -> float:
    for _ in range(3):
        function()
    times = []
    for _ in range(samples):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        function()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def operands(dim: int, length: int) -> tuple:
    batch = TOKENS // length
    query, key, value = (torch.randn(batch, heads, length, dim, device="cuda", dtype=torch.bfloat16,
                                     requires_grad=True)
                         for heads in (HEADS, KV_HEADS, KV_HEADS))
    return query, key, value, torch.randn_like(query)


def time_both(attend, inputs: tuple, gradient: torch.Tensor, samples: int) -> tuple:
    with torch.no_grad():
        forward = median_ms(attend, samples)

    def both():
        torch.autograd.grad(attend(), inputs, gradient)

    return forward, median_ms(both, samples)


def run_sdpa(dim: int, length: int) -> list:
    query, key, value, gradient = operands(dim, length)
    results = []
    for name, backend in (("flash", SDPBackend.FLASH_ATTENTION),
                          ("cudnn", SDPBackend.CUDNN_ATTENTION)):
        with sdpa_kernel(backend):
            forward, both = time_both(
                lambda: F.scaled_dot_product_attention(query, key, value, is_causal=True,
                                                       enable_gqa=True),
                (query, key, value), gradient, 11)
        results.append((f"sdpa {name}", forward, both))
    return results


def run_flex(dim: int, length: int) -> list:
    query, key, value, gradient = operands(dim, length)
    bias = F.logsigmoid(10 * torch.randn(TOKENS // length, KV_HEADS, length, device="cuda"))
    bias.requires_grad_()
    group = HEADS // KV_HEADS
    results = []
    for blocks in (False, True):
        def score(s, b, h, i, j):
            biased = s + torch.where(i - j > WINDOW, bias[b, h // group, j], 0.0)
            return biased if blocks else torch.where(i >= j, biased, -math.inf)

        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, length, length,
                                 device="cuda") if blocks else None
        torch._dynamo.reset()
        compiled = torch.compile(flex_attention, dynamic=False)
        forward, both = time_both(
            lambda: compiled(query, key, value, score_mod=score, block_mask=mask, enable_gqa=True),
            (query, key, value, bias), gradient, 5)
        results.append(("flex, causal blocks" if blocks else "flex", forward, both))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--flex", action="store_true")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    results = []
    for dim in (64, 128):
        for length in (4096, 8192):
            rows = run_sdpa(dim, length) + (run_flex(dim, length) if args.flex else [])
            for name, forward, both in rows:
                print(f"{dim:4} {length:6} {name:20} {forward:9.3f} {both:9.3f}", flush=True)
                results.append({"head_dim": dim, "document": length, "system": name,
                                "forward_ms": forward, "forward_backward_ms": both})
    if args.output:
        args.output.write_text(json.dumps({"torch": torch.__version__,
                                           "device": torch.cuda.get_device_name(),
                                           "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
