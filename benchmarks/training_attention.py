"""Training attention on the CPU: winnow's, with the DMS bias, against PyTorch's dense one.

    pip install torch
    make bench BENCH_ARGS=--benchmark_filter=none   # builds the benchmarks
    python benchmarks/training_attention.py --output docs/results/training-attention.json

Both in turn, for --rounds rounds, on the shape of training_attention_benchmark: 4,096 tokens, 6 query
heads, 2 KV heads (PyTorch gets them repeated), D = 64, fp32. Milliseconds are medians over the rounds,
ratios medians of each round's ratio.
"""

import argparse
import datetime
import json
import statistics
import subprocess
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from cpu_speed import cpu_name

HERE = Path(__file__).resolve().parent
TOKENS, HEADS, DIM = 4096, 6, 64


def run_winnow(binary: Path) -> dict:
    """Milliseconds by (backward, biased)."""
    command = [str(binary), "--benchmark_filter=training_attention", "--benchmark_min_time=0.5",
               "--benchmark_format=json"]
    report = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    names = {f"training_attention/backward:{back}/biased:{biased}/real_time": (back, biased)
             for back in (0, 1) for biased in (0, 1)}
    return {names[row["name"]]: row["real_time"] for row in report["benchmarks"]}


def run_torch() -> tuple:
    """Milliseconds forward, and forward with backward: the median of three."""
    operands = [torch.randn(1, HEADS, TOKENS, DIM, requires_grad=True) for _ in range(3)]
    gradient = torch.randn(1, HEADS, TOKENS, DIM)
    times = []
    for _ in range(4):
        begin = time.perf_counter()
        out = F.scaled_dot_product_attention(*operands, is_causal=True)
        middle = time.perf_counter()
        out.backward(gradient)
        times.append((1e3 * (middle - begin), 1e3 * (time.perf_counter() - begin)))
    return tuple(statistics.median(column) for column in zip(*times[1:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path,
                        default=HERE.parent / "build/release/benchmarks/training_attention_benchmark")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()

    rounds = [{"winnow": run_winnow(args.binary), "torch": run_torch()} for _ in range(args.rounds)]
    print("| | forward, ms | of PyTorch's time | forward + backward, ms | of PyTorch's time |")
    print("|---|---|---|---|---|")
    print("| PyTorch, dense causal | " + " | ".join(
        f"{statistics.median(r['torch'][back] for r in rounds):.0f} | 1.00" for back in (0, 1)) + " |")
    for biased, name in enumerate(("winnow, dense causal", "winnow, DMS bias, w = 256")):
        cells = [f"{statistics.median(r['winnow'][back, biased] for r in rounds):.0f} | "
                 f"{statistics.median(r['winnow'][back, biased] / r['torch'][back] for r in rounds):.2f}"
                 for back in (0, 1)]
        print(f"| {name} | {' | '.join(cells)} |")
    args.output.write_text(json.dumps({
        "date": datetime.date.today().isoformat(),
        "cpu": cpu_name(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "rounds": [{"winnow": [{"backward": back, "biased": biased, "milliseconds": ms}
                               for (back, biased), ms in r["winnow"].items()],
                    "torch": {"forward_ms": r["torch"][0], "forward_backward_ms": r["torch"][1]}}
                   for r in rounds],
    }, indent=1) + "\n")


if __name__ == "__main__":
    main()
