"""Draws the training curves: plot.py base.jsonl dms-cr8.jsonl --out curves.png"""

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def rows(path: Path, key: str) -> tuple[list, list]:
    records = [json.loads(line) for line in path.read_text().splitlines()]
    chosen = [(r["step"], r[key]) for r in records if key in r]
    return [step for step, _ in chosen], [value for _, value in chosen]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pretrain", type=Path)
    parser.add_argument("retrofits", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()

    figure, (loss, recall, kl, ratio) = plt.subplots(1, 4, figsize=(17, 3.8), constrained_layout=True)
    loss.plot(*rows(args.pretrain, "loss"), color="0.7", label="training mixture (weighted)")
    steps, reports = rows(args.pretrain, "valid")
    for source in [s for s in reports[0] if s != "recall"]:
        loss.plot(steps, [r[source] for r in reports], marker=".", label=f"held-out {source}")
    loss.set(title="Base: cross-entropy", xlabel="step", ylabel="nats per token", ylim=(1, 6))
    loss.legend(fontsize=7)
    recall.plot(steps, [r["recall"] for r in reports], marker=".")
    recall.set(title="Base: recall tokens right (greedy)", xlabel="step", ylim=(0, 1.02))

    for path in args.retrofits:
        steps, values = rows(path, "kl")
        line = kl.plot(steps, values, label=f"{path.stem}, sampled decisions")[0]
        evaluated, reports = rows(path, "valid")
        kl.plot(evaluated, [r["kld"] for r in reports], "o", color=line.get_color(), label=f"{path.stem}, held-out, hard decisions")
        ratio.plot(steps, [1 / (1 - e) for e in rows(path, "evicted")[1]], color=line.get_color(), label=f"{path.stem}: 1 / (1 - share evicted)")
        ratio.plot(steps, [1 / (1 - t) for t in rows(path, "target")[1]], "--", color="0.5")
        ratio.plot(evaluated, [r["cr"] for r in reports], "o", color=line.get_color(), label=f"{path.stem}: measured at 4096 tokens")
    kl.set(title="Retrofit: KL(base || student)", xlabel="step", ylabel="nats per token", yscale="log")
    kl.legend(fontsize=7)
    ratio.set(title="Retrofit: compression ratio (dashed: target)", xlabel="step")
    ratio.legend(fontsize=7)
    figure.savefig(args.out, dpi=110)


if __name__ == "__main__":
    main()
