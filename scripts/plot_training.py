"""Plots a training run: loss, compression, what each head evicts.

    python scripts/plot_training.py OUT [OUT ...] --output curves.png

OUT is the --out of `winnow train` or `winnow retrofit`; several are drawn over each other, and the heat map is
the last one's. Needs matplotlib.
"""

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def read_metrics(out: Path) -> tuple[list[dict], list[dict]]:
    """Updates, and evaluations on held-out data."""
    lines = [json.loads(line) for line in (out / "training" / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "loss" in line], [line for line in lines if "held_out" in line]


def smooth(values: list[float], width: int) -> list[float]:
    """Running means over up to `width` values."""
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    return [(sums[i + 1] - sums[max(0, i + 1 - width)]) / min(width, i + 1) for i in range(len(values))]


def ratio(share: float) -> float:
    return 1 / max(1e-3, 1 - share)


def layers_of(out: Path) -> int:
    return json.loads((out / "config.json").read_text())["num_hidden_layers"]


def draw_loss(axis, out: Path, updates: list[dict], looks: list[dict]) -> None:
    steps = [u["step"] for u in updates]
    width = max(1, len(steps) // 50)
    (line,) = axis.plot(steps, smooth([u["loss"] for u in updates], width), label=out.name, linewidth=1)
    distilled = any("kld" in look["held_out"] for look in looks)
    key = "kld" if distilled else "nll_per_token"
    held_out = [(look["step"], look["held_out"][key]) for look in looks if key in look["held_out"]]
    axis.plot([step for step, _ in held_out], [value for _, value in held_out], "o", color=line.get_color(), markersize=4)
    axis.set_ylabel("KL, nats/token" if distilled else "loss, nats/token")
    axis.set_title("loss (dots: held out, hard decisions)")
    if distilled:
        axis.set_yscale("log")


def draw_compression(axis, out: Path, updates: list[dict], looks: list[dict]) -> None:
    evicting = [u for u in updates if "evicted" in u]
    steps = [u["step"] for u in evicting]
    (line,) = axis.plot(steps, [ratio(u["evicted"]) for u in evicting], label=out.name, linewidth=1)
    axis.plot(steps, [ratio(u["evicted_target"]) for u in evicting], "--", color=line.get_color(), linewidth=1)
    axis.plot(
        [look["step"] for look in looks],
        [look["held_out"]["compression_ratio"] for look in looks],
        "o",
        color=line.get_color(),
        markersize=4,
    )
    axis.set_title("compression ratio (dashed: target; dots: held out)")


def draw_layers(axis, out: Path, updates: list[dict]) -> None:
    evicting = [u for u in updates if "evicted" in u]
    layers = layers_of(out)
    heads = len(evicting[-1]["evicted_per_head"]) // layers
    for layer in range(layers):
        shares = [sum(u["evicted_per_head"][layer * heads : (layer + 1) * heads]) / heads for u in evicting]
        axis.plot(
            [u["step"] for u in evicting],
            smooth(shares, max(1, len(shares) // 50)),
            color=plt.cm.viridis(layer / max(1, layers - 1)),
            label=f"layer {layer}",
            linewidth=1,
        )
    axis.set_ylim(0, 1)
    axis.set_title(f"{out.name}: share evicted, by layer")


def draw_heads(axis, out: Path, updates: list[dict]) -> None:
    last = [u["evicted_per_head"] for u in updates if "evicted" in u][-20:]
    layers = layers_of(out)
    means = [sum(column) / len(last) for column in zip(*last)]
    heads = len(means) // layers
    grid = [means[layer * heads : (layer + 1) * heads] for layer in range(layers)]
    image = axis.imshow(grid, vmin=0, vmax=1, aspect="auto", cmap="magma")
    axis.set_xticks(range(heads))
    axis.set_yticks(range(layers))
    axis.set_xlabel("KV head")
    axis.set_ylabel("layer")
    axis.set_title(f"{out.name}: share evicted, last {len(last)} steps")
    axis.figure.colorbar(image, ax=axis)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="+")
    parser.add_argument("--output", type=Path, default=Path("training.png"))
    args = parser.parse_args()
    runs = {out: read_metrics(out) for out in args.out}
    evicts = any("evicted" in update for updates, _ in runs.values() for update in updates)
    rows, columns = (2, 2) if evicts else (1, 1)
    figure, axes = plt.subplots(rows, columns, figsize=(6 * columns, 4 * rows), squeeze=False)
    for out, (updates, looks) in runs.items():
        draw_loss(axes[0][0], out, updates, looks)
        if evicts:
            draw_compression(axes[0][1], out, updates, looks)
    if evicts:
        draw_layers(axes[1][0], out, updates)
        draw_heads(axes[1][1], out, updates)
    for axis in axes.flat:
        if axis.get_legend_handles_labels()[0]:
            axis.set_xlabel("step")
            axis.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(args.output, dpi=110)


if __name__ == "__main__":
    main()
