"""Plots measured decode steps beside the model of their time.

    python3 scripts/plot_latency.py docs/results/latency.json --output docs/results/latency.svg

The file is what benchmarks/cuda/latency.py wrote. Needs matplotlib.
"""

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.fonttype"] = "none"  # text as text: a small file
matplotlib.rcParams["svg.hashsalt"] = "winnow"
import matplotlib.pyplot as plt

STYLES = {1: ("dense", "#555555", "s"), 4: ("DMS, CR 4", "#2b6cb0", "^"), 8: ("DMS, CR 8", "#1f9d55", "o")}


def draw(axis, made: dict, batch: int) -> None:
    for ratio, (label, colour, marker) in STYLES.items():
        steps = sorted((s for s in made["measured"] if s["batch"] == batch and s["cr"] == ratio), key=lambda step: step["length"])
        lengths = [step["length"] for step in steps]
        axis.plot(lengths, [1e3 * step["seconds"] for step in steps], color=colour, marker=marker, markersize=4, label=label)
        axis.plot(lengths, [1e3 * step["modelled_seconds"] for step in steps], color=colour, linestyle=":", linewidth=1.2)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.xaxis.set_major_formatter(lambda x, _: f"{x / 1024:.0f}K")
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter("{x:g}")
    axis.tick_params(axis="y", which="both", labelsize=7)
    axis.grid(alpha=0.25)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    shapes = json.loads(args.file.read_text())
    steps = [step for made in shapes.values() for step in made["measured"]]
    batches = [b for b in sorted({step["batch"] for step in steps}) if len({s["length"] for s in steps if s["batch"] == b}) > 1]
    figure, axes = plt.subplots(len(shapes), len(batches), figsize=(2.9 * len(batches), 2.7 * len(shapes)), squeeze=False)
    for row, (shape, made) in zip(axes, shapes.items()):
        for axis, batch in zip(row, batches):
            draw(axis, made, batch)
            axis.set_title(f"{shape}, batch {batch}", fontsize=9)
        row[0].set_ylabel("ms per step")
    for axis in axes[-1]:
        axis.set_xlabel("tokens in each sequence")
    axes[0][0].legend(fontsize=8, title="dotted: the model", title_fontsize=8)
    figure.tight_layout()
    figure.savefig(args.output, metadata={"Date": None})


if __name__ == "__main__":
    main()
