"""Plots what benchmarks/retrofits.py measured: quality against compression, against tokens, and where a model keeps what.

    python scripts/plot_retrofits.py docs/results/retrofits --profile docs/results/retrofit-student.json \\
        --output docs/results/retrofits.svg

The profile holds what `winnow eval profile --json` printed under the key "profile". Needs matplotlib.
"""

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "winnow"
import matplotlib.pyplot as plt

TEXT = "prose"
FAMILIES = [  # label, runs, marker
    ("DMS, window 64", [f"dms-w64-cr{cr}" for cr in (2, 3, 4, 8)], "o-"),
    ("DMS, window 16", [f"dms-w16-cr{cr}" for cr in (2, 3, 4, 8)], "s-"),
    ("window 16, immediate eviction", ["immediate-w16-cr4"], "v"),
    ("DMC", ["dmc-cr2", "dmc-cr4"], "^-"),
    ("GQA, half the KV heads", ["gqa-cr2-lr1e-3"], "D"),
]


def held_out(folder: Path, run: str) -> dict:
    return json.loads((folder / f"{run}.json").read_text())["held_out"]


def draw_compression(axis, folder: Path) -> None:
    for label, runs, style in FAMILIES:
        found = [held_out(folder, run)[TEXT] for run in runs]
        # GQA halves the heads of the model itself: its cache has nothing left to compress.
        ratios = [2 if run.startswith("gqa") else f["compression_ratio"] for run, f in zip(runs, found)]
        errors = [f["kld_error"] for f in found]
        axis.errorbar(ratios, [f["kld"] for f in found], yerr=errors, fmt=style, label=label, markersize=5, linewidth=1)
    axis.set_yscale("log")
    axis.set_xlabel("compression ratio, measured")
    axis.set_ylabel("KL from the base, nats/token")
    axis.set_title(f"equal tokens, held-out {TEXT}")
    axis.legend(fontsize=7)


def draw_tokens(axis, folder: Path) -> None:
    for label, runs in {"DMS, window 16": ("tokens-dms-half", "dms-w16-cr4"), "DMC": ("tokens-dmc-half", "dmc-cr4")}.items():
        points = []
        for run in runs:
            metrics = json.loads((folder / f"{run}.json").read_text())["metrics"]
            updates = [m for m in metrics if "loss" in m]
            found = held_out(folder, run)[TEXT]
            points.append((updates[-1]["step"] * updates[-1]["tokens"] / 1e6, found["kld"], found["compression_ratio"]))
        axis.plot([p[0] for p in points], [p[1] for p in points], "o-", label=label, linewidth=1)
        for tokens, kld, ratio in points:
            axis.annotate(f"CR {ratio:.1f}", (tokens, kld), textcoords="offset points", xytext=(0, 6), fontsize=7, ha="center")
    axis.margins(x=0.2, y=0.12)
    axis.set_ylim(bottom=0)
    axis.set_xlabel("million tokens")
    axis.set_ylabel("KL from the base, nats/token")
    axis.set_title("target CR 4")
    axis.legend(fontsize=7)


def draw_heads(figure, axis, profile: dict) -> None:
    grid = profile["per_layer_head"]
    image = axis.imshow(grid, aspect="auto", norm=matplotlib.colors.LogNorm(vmin=1), cmap="viridis")
    axis.set_xticks(range(len(grid[0])))
    axis.set_yticks(range(len(grid)))
    for layer, row in enumerate(grid):
        for head, ratio in enumerate(row):
            axis.text(head, layer, f"{ratio:.1f}", ha="center", va="center", fontsize=7, color="black" if ratio > 8 else "white")
    axis.set_xlabel("KV head")
    axis.set_ylabel("layer")
    axis.set_title(f"CR per head, {profile['tokens']:,} tokens")
    figure.colorbar(image, ax=axis)


def draw_length(axis, profile: dict) -> None:
    lengths = profile["by_length"]
    axis.plot([p["length"] for p in lengths], [p["compression_ratio"] for p in lengths], "o-", linewidth=1)
    axis.set_xscale("log", base=2)
    axis.set_xlabel("tokens read")
    axis.set_ylabel("compression ratio")
    axis.set_title("CR against length (line), share kept by position (bars)")
    share = axis.twinx()
    for bin in profile["by_position"]:
        share.bar(bin["first"], 100 * (bin["kept"] or 0), width=bin["last"] - bin["first"], align="edge", alpha=0.25, color="tab:gray")
    share.set_ylim(0, 20)
    axis.set_zorder(share.get_zorder() + 1)  # the line in front of the bars
    axis.patch.set_visible(False)
    share.set_ylabel("kept, % of the entries at a position")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--profile", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    profile = json.loads(args.profile.read_text())["profile"]
    figure, axes = plt.subplots(2, 2, figsize=(10, 7.5))
    draw_compression(axes[0][0], args.folder)
    draw_tokens(axes[0][1], args.folder)
    draw_heads(figure, axes[1][0], profile)
    draw_length(axes[1][1], profile)
    figure.tight_layout()
    figure.savefig(args.output, metadata={"Date": None} if args.output.suffix == ".svg" else {}, dpi=110)


if __name__ == "__main__":
    main()
