"""Plots what benchmarks/quality.py found against the compression ratio, a panel per measure.

    python3 scripts/plot_quality.py quality.json --output quality.svg

The ratio is the one measured in that panel; Quest, which keeps everything, stands at the ratio of what it reads.
Needs matplotlib.
"""

import argparse
import json
import re
from pathlib import Path

from plot_hyperscale import STYLES, plt

PANELS = ("text docs", "text prose", "arithmetic", "needle 4096", "variables 4096", "variables 8192 scaled")
NAMES = {"text docs": "KLD to the base on documentation, nats/token", "text prose": "KLD to the base on prose, nats/token",
         "arithmetic": "arithmetic, after eight examples, %",
         "needle 4096": "needles found, 4,096 tokens, %", "variables 4096": "variables followed, 4,096 tokens, %",
         "variables 8192 scaled": "variables, 8,192 tokens, RoPE scaled, %"}  # fmt: skip
SERIES = {rule: (rf"{rule} (\d+)", *STYLES[rule]) for rule in ("h2o", "tova", "streaming", "quest")} | {
    "dmc": (r"dmc (\d+)", "DMC", "#805ad5", "X"),
    "dms w16": (r"dms (\d+) w16", "DMS, window 16", "#68c48f", "o"),
    "dms": (r"dms (\d+)", "DMS, window 64", STYLES["dms"][1], "o"),
    "dms long": (r"dms (\d+) long", "DMS, trained longer", STYLES["dms"][1], "*"),
}  # fmt: skip


def points(results: list[dict], measure: str, pattern: str) -> list[tuple[float, float]]:
    found = []
    for one in results:
        match = re.fullmatch(pattern, one["row"])
        if match and one["measure"] == measure:
            result = one["result"]
            ratio = float(match[1]) if one["row"].startswith("quest") else result["compression_ratio"]
            found.append((ratio, result["kld"] if "kld" in result else 100 * result["accuracy"]))
    return sorted(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--output", type=Path, default=Path("quality.svg"))
    args = parser.parse_args()
    results = json.loads(args.results.read_text())
    figure, axes = plt.subplots(2, 3, figsize=(12, 6.6))
    for axis, measure in zip(axes.flat, PANELS):
        for pattern, label, colour, marker in SERIES.values():
            line = points(results, measure, pattern)
            axis.plot([x for x, _ in line], [y for _, y in line], color=colour, marker=marker, markersize=5, label=label,
                      linewidth=2.2 if label.startswith("DMS") else 1.3, linestyle="--" if label == "Quest" else "-")  # fmt: skip
        for dense in (r for r in results if r["row"] == "dense" and r["measure"] == measure and "kld" not in r["result"]):
            axis.axhline(100 * dense["result"]["accuracy"], color=STYLES["dense"][1], linewidth=1, linestyle=":", label="dense")
        axis.set_xscale("log", base=2)
        axis.set_xticks([1, 2, 3, 4, 8], ["1", "2", "3", "4", "8"])
        axis.set_title(NAMES[measure], fontsize=10)
        axis.grid(alpha=0.25)
        if measure.startswith("text"):
            axis.set_yscale("log")
        else:
            axis.set_ylim(-4, 104)
    for axis in axes[1]:
        axis.set_xlabel("compression ratio, measured")
    handles = {label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels())}
    figure.legend(handles.values(), handles.keys(), ncol=len(handles), loc="lower center", frameon=False, columnspacing=1.2, handlelength=1.6)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    figure.savefig(args.output, metadata={"Date": None} if args.output.suffix == ".svg" else None)


if __name__ == "__main__":
    main()
