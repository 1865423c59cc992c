"""Plots the bytes of a sequence's cache against the tokens that it has taken.

    winnow bench --growth --chunk 1024 --context 131072 ... --json > RUN.json
    python scripts/plot_kv_memory.py RUN.json [RUN.json ...] --output kv-memory.svg

Needs matplotlib.
"""

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

GIB = 1 << 30


def label_of(run: dict) -> str:
    name = f"{run['cache']}, {run['kv_dtype']}"
    return name if run["cr"] is None else f"{name}, {run['cr']:g}x fewer entries"


def draw(axis, runs: list[dict]) -> None:
    for run in runs:
        points = run["growth"]
        tokens = [point["tokens"] for point in points]
        (line,) = axis.plot(tokens, [point["bytes"] / GIB for point in points], label=label_of(run))
        last = points[-1]
        axis.annotate(
            f"{last['bytes'] / GIB:.3g} GiB",
            (last["tokens"], last["bytes"] / GIB),
            textcoords="offset points",
            xytext=(-4, 5),
            ha="right",
            color=line.get_color(),
        )
    axis.set_xlabel("tokens in the cache")
    axis.set_ylabel("KV GiB handed out, tables included")
    axis.legend()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, default=Path("kv-memory.svg"))
    arguments = parser.parse_args()
    runs = [json.loads(path.read_text()) for path in arguments.runs]

    figure, (linear, logarithmic) = plt.subplots(1, 2, figsize=(10, 4))
    draw(linear, runs)
    draw(logarithmic, runs)
    logarithmic.set_xscale("log", base=2)
    logarithmic.set_yscale("log")
    figure.suptitle(f"{runs[0]['model']}, one sequence")
    figure.tight_layout()
    figure.savefig(arguments.output)


if __name__ == "__main__":
    main()
