"""Plots accuracy against KV reads and peak tokens, and every method's Pareto frontier.

    python3 scripts/plot_hyperscale.py DIR --output hyperscale.svg

DIR holds what `winnow eval hyperscale --out` wrote; all files of one rule are one method. Needs matplotlib.
"""

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.fonttype"] = "none"  # text as text: a small file
matplotlib.rcParams["svg.hashsalt"] = "winnow"
import matplotlib.pyplot as plt

STYLES = {  # rule -> label, colour, marker
    "dense": ("vanilla (dense)", "#555555", "s"),
    "dms": ("DMS", "#1f9d55", "o"),
    "quest": ("Quest", "#2b6cb0", "^"),
    "tova": ("TOVA", "#c05621", "v"),
    "h2o": ("H2O", "#b83280", "D"),
    "streaming": ("streaming", "#b7791f", "P"),
    "rkv": ("R-KV", "#805ad5", "X"),
    "triattention": ("TriAttention", "#319795", "<"),
    "vatp": ("VATP", "#d53f8c", ">"),
    "random": ("random, spares the prompt", "#a0aec0", "p"),
    "dms_budget": ("DMS in a budget", "#68d391", "h"),
    "dms_quest": ("DMS with Quest", "#22543d", "*"),
}


def read_methods(folder: Path) -> dict[str, list[dict]]:
    methods: dict[str, list[dict]] = {}
    for path in sorted(folder.glob("*.json")):
        result = json.loads(path.read_text())
        if "points" in result:
            methods.setdefault(result["run"]["cache"]["rule"], []).extend(result["points"])
    return {rule: methods[rule] for rule in STYLES if rule in methods}


def frontier(points: list[dict], budget: str) -> list[tuple[float, float]]:
    best: list[tuple[float, float]] = []
    for point in sorted(points, key=lambda point: (point[budget], -point["accuracy"])):
        if not best or point["accuracy"] > best[-1][1]:
            best.append((point[budget], point["accuracy"]))
    return best


def draw(axis, methods: dict[str, list[dict]], budget: str, label: str) -> None:
    for rule, points in methods.items():
        name, colour, marker = STYLES[rule]
        main = rule in ("dms", "dense")
        axis.scatter([p[budget] for p in points], [100 * p["accuracy"] for p in points], s=14, alpha=0.3, color=colour,
                     marker=marker, linewidths=0)  # fmt: skip
        line = frontier(points, budget)
        axis.plot([x for x, _ in line], [100 * y for _, y in line], color=colour, marker=marker, markersize=4.5 if main else 3.5,
                  linewidth=2.4 if main else 1.3, label=name, zorder=3 if main else 2)  # fmt: skip
    axis.set_xscale("log")
    axis.set_xlabel(label)
    axis.grid(alpha=0.25)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--output", type=Path, default=Path("hyperscale.svg"))
    args = parser.parse_args()
    methods = read_methods(args.folder)
    figure, (reads, peak) = plt.subplots(1, 2, figsize=(10.5, 4.5), sharey=True)
    draw(reads, methods, "kv_reads", "KV reads per head (runtime)")
    draw(peak, methods, "peak_tokens", "peak tokens per head (memory)")
    reads.set_ylabel("problems solved, %")
    columns = 6
    rows = (len(methods) + columns - 1) // columns
    figure.tight_layout(rect=(0, 0.02 + 0.05 * rows, 1, 1))
    figure.legend(*reads.get_legend_handles_labels(), frameon=False, loc="lower center", ncols=columns)
    figure.savefig(args.output, metadata={"Date": None} if args.output.suffix == ".svg" else None)


if __name__ == "__main__":
    main()
