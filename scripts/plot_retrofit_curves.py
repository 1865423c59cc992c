"""Plots what benchmarks/retrofit_curves.py measured, and prints it as Markdown tables.

    python scripts/plot_retrofit_curves.py docs/results/retrofit-curves.jsonl --output docs/results/retrofit-curves.svg

Points are means over seeds, bars reach from the lowest to the highest seed. Needs matplotlib, but not with
--table.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

LABELS = {
    "dms16": "DMS, window 16",
    "dms64": "DMS, window 64",
    "dms256": "DMS, window 256",
    "dmc": "DMC",
    "gqa": "GQA, half the KV heads",
    "adapter64": "DMS by an adapter, window 64",
}
Groups = dict[tuple[str, int, int], list[dict]]  # method, target, updates -> a run per seed


def read_groups(file: Path) -> tuple[dict | None, Groups]:
    """The base's line, and all others by what differs but for the seed."""
    base, groups = None, defaultdict(list)
    for line in file.read_text().splitlines():
        run = json.loads(line)
        if run["name"] == "base":
            base = run
        else:
            groups[run["method"], run["target"], run["updates"]].append(run)
    return base, groups


def ratio_of(run: dict, text: str) -> float:
    # GQA halves the heads of the model itself: its cache has nothing left to compress.
    return 2.0 if run["method"] == "gqa" else run["held_out"][text]["compression_ratio"]


def spread(values: list[float], digits: int) -> str:
    error = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{error}"


def columns_of(runs: list[dict], base: dict | None, texts: list[str]) -> list[str]:
    cells = []
    for text in texts:
        found = [run["held_out"][text] for run in runs]
        cells.append(spread([f["kld"] for f in found], 4))
        dense = base["held_out"].get(text) if base else None
        if dense:
            cells.append(f"{mean(100 * (f['perplexity'] / dense['perplexity'] - 1) for f in found):+.2f} %")
        else:
            cells.append("")
        cells.append(f"{mean(ratio_of(run, text) for run in runs):.2f}")
    for task in ("needle", "variables"):
        scores = [100 * run["held_out"][task]["accuracy"] for run in runs if task in run["held_out"]]
        cells.append(f"{mean(scores):.0f} %" if scores else "")
    return cells


def print_tables(base: dict | None, groups: Groups, texts: list[str]) -> None:
    heads = [f"{text}: {column}" if column == "KLD" else column for text in texts for column in ("KLD", "PPL", "CR")]
    print(f"| method | target | M tokens | seeds | {' | '.join(heads)} | needle | variables |")
    print("|---" * (6 + len(heads)) + "|")
    order = list(LABELS)
    for (method, target, _), runs in sorted(groups.items(), key=lambda item: (item[0][1], order.index(item[0][0]), item[0][2])):
        cells = columns_of(runs, base, texts)
        print(f"| {LABELS[method]} | {target} | {runs[0]['tokens'] / 1e6:.1f} | {len(runs)} | {' | '.join(cells)} |")


def errorbar(axis, points: list[tuple[float, list[float]]], label: str) -> None:
    means = [mean(values) for _, values in points]
    low = [m - min(values) for m, (_, values) in zip(means, points)]
    high = [max(values) - m for m, (_, values) in zip(means, points)]
    axis.errorbar([x for x, _ in points], means, yerr=[low, high], fmt="o-", capsize=3, label=label, markersize=4, linewidth=1)


def draw_curves(axis, groups: Groups, target: int, text: str) -> None:
    for method, label in LABELS.items():
        found = sorted((updates, runs) for (m, t, updates), runs in groups.items() if (m, t) == (method, target))
        if len(found) < 2:
            continue
        points = [(runs[0]["tokens"] / 1e6, [run["held_out"][text]["kld"] for run in runs]) for _, runs in found]
        errorbar(axis, points, label)
        for (x, values), (_, runs) in zip(points, found):
            ratio = mean(ratio_of(run, text) for run in runs)
            axis.annotate(f"{ratio:.1f}", (x, mean(values)), textcoords="offset points", xytext=(0, 6), fontsize=7, ha="center")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_xlabel("million tokens")
    axis.set_ylabel("KL from the base, nats/token")
    axis.margins(y=0.12)
    axis.set_title(f"target CR {target}, {text} (figures: measured CR)")
    axis.legend(fontsize=7)


def draw_methods(axis, groups: Groups, target: int, text: str) -> None:
    longest = max(updates for _, t, updates in groups if t == target)
    for method, label in LABELS.items():
        runs = groups.get((method, target, longest), [])
        if runs:
            axis.plot([ratio_of(r, text) for r in runs], [r["held_out"][text]["kld"] for r in runs], "o", label=label, markersize=5)
    axis.set_yscale("log")
    axis.set_xlabel("compression ratio, measured")
    axis.set_title(f"target CR {target}, {text}: a point per seed")
    axis.legend(fontsize=7)


def plot(groups: Groups, text: str, output: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "winnow"
    import matplotlib.pyplot as plt

    targets = sorted({target for _, target, _ in groups})
    longest = max(updates for _, _, updates in groups)
    compares = sum((method, targets[-1], longest) in groups for method in LABELS) > 1
    panels = len(targets) + compares
    figure, axes = plt.subplots(1, panels, figsize=(5 * panels, 4.2), squeeze=False)
    for axis, target in zip(axes[0], targets):
        draw_curves(axis, groups, target, text)
    if compares:
        draw_methods(axes[0][-1], groups, targets[-1], text)
    figure.tight_layout()
    figure.savefig(output, metadata={"Date": None} if output.suffix == ".svg" else {}, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--text", default="prose", help="of the figure; the tables have all")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--table", action="store_true", help="only print the tables")
    args = parser.parse_args()
    base, groups = read_groups(args.file)
    first = next(iter(groups.values()))[0]["held_out"]
    print_tables(base, groups, [name for name, found in first.items() if "kld" in found])
    if not args.table:
        if args.output is None:
            parser.error("--output is missing")
        plot(groups, args.text, args.output)


if __name__ == "__main__":
    main()
