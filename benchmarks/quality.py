"""The DMS paper's tables 1 and 2 in our terms: every rule and ratio on one base model, and its students.

    python3 benchmarks/quality.py --base assets/base --students dms-4=DIR dmc-2=DIR ... --text docs=docs.txt \\
        --hay essays.txt --places cuda:0=6 cuda:1=6 cpu=24 --work WORK --out docs/results/quality

A student's name is what the tables show; its rule is its checkpoint's. Problems are asked after eight others, as
turns of one chat. Lengths beyond the base's positions are measured on copies whose config.json allows them, as
they are and with RoPE scaled as in Llama 3.1. Results that are in WORK are not made again. Writes OUT.json (a
line per result, as `winnow eval` gave it) and the tables, OUT.md.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "assets/make"))
import tasks  # noqa: E402

RULES, RATIOS = ("h2o", "tova", "streaming", "quest"), (2, 3, 4, 8)
FORMATS = ("fp8", "int8", "q4")
STORED = ("dense", "quest 4", "dms 4", "dms 8")  # rows that are shown with every format
PROBLEMS = {"arithmetic": tasks.arithmetic, "equations": tasks.linear_equation, "stories": tasks.word_problem}
SHOTS = 8
ONE_BY_ONE = ("h2o", "tova")  # rules that take tokens one at a time: a device is not faster than a few cores


@dataclass
class Measure:
    arguments: list[str]  # of winnow eval
    length: int = 0  # positions it needs
    scaled: bool = False  # RoPE


@dataclass
class Cell:
    row: str
    measure: str

    def one_by_one(self) -> bool:
        return self.row.startswith(ONE_BY_ONE)


def configurations(students: list[str]) -> dict[str, tuple[str, list[str]]]:
    """Name -> (model, flags)"""
    rows: dict[str, tuple[str, list[str]]] = {"dense": ("base", [])}
    rows |= {f"{rule} {ratio}": ("base", ["--cache", rule, "--cr", str(ratio)]) for rule in RULES for ratio in RATIOS}
    rows |= {name.replace("-", " "): (name, []) for name in students}
    for name in STORED:
        if name in rows:
            model, flags = rows[name]
            rows |= {f"{name} {kind}": (model, [*flags, "--kv-dtype", kind]) for kind in FORMATS}
    return rows


def problems(count: int, draw, seed: int) -> str:
    rng = Random(seed)
    lines = []
    for _ in range(count):
        problem = draw(rng)
        lines.append(json.dumps({"question": problem.question, "answer": f"{problem.answer}\n#### {problem.result}"}))
    return "\n".join(lines) + "\n"


class Table:
    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.models = {"base": args.base} | {n: Path(d) for n, d in (s.split("=", 1) for s in args.students)}
        self.positions = json.loads((args.base / "config.json").read_text())["max_position_embeddings"]
        rows = configurations([name for name in self.models if name != "base"])
        self.rows = {row: what for row, what in rows.items() if re.search(args.rows, row)}
        self.measures = {name: what for name, what in self.list_measures().items() if re.search(args.measures, name)}
        self.lock = threading.Lock()

    def stretched(self, model: str, length: int, scaled: bool) -> Path:
        """A model whose config.json allows `length` tokens, and slows RoPE's long waves for them if `scaled`."""
        source = self.models[model]
        if length <= self.positions:
            return source
        target = self.args.work / f"models/{model}-{length}{'-scaled' if scaled else ''}"
        with self.lock:
            if not (target / "config.json").exists():
                target.mkdir(parents=True, exist_ok=True)
                for file in source.iterdir():
                    if file.is_file() and file.name != "config.json":
                        os.symlink(file.resolve(), target / file.name)
                config = json.loads((source / "config.json").read_text())
                config["max_position_embeddings"] = length
                if scaled:
                    config["rope_scaling"] = {"rope_type": "llama3", "factor": length / self.positions, "low_freq_factor": 1.0,
                                              "high_freq_factor": 4.0, "original_max_position_embeddings": self.positions}  # fmt: skip
                (target / "config.json").write_text(json.dumps(config, indent=2))
        return target

    def list_measures(self) -> dict[str, Measure]:
        args = self.args
        windows = ["--context", str(self.positions), "--max-tokens", str(args.eval_tokens), "--reference", str(args.base)]
        found = {}
        for text in args.text:
            name, file = text.split("=", 1)
            found[f"text {name}"] = Measure(["perplexity", "--text", file, *windows])
        for name, draw in PROBLEMS.items():
            file, shots = args.work / f"{name}.jsonl", args.work / f"{name}-shots.jsonl"
            file.write_text(problems(args.problems, draw, 20261122))
            shots.write_text(problems(SHOTS + 1, draw, 7))
            found[name] = Measure(["tasks", "--task", "gsm8k", "--chat", "--data", str(file), "--shots", str(SHOTS),
                                   "--shots-data", str(shots), "--max-tokens", "120"])  # fmt: skip
        plain = ["--style", "plain", "--chains", "3", "--hops", "2", "--max-tokens", "80"]
        for length in args.lengths:
            beyond = length > self.positions
            repeats = args.repeats // 2 if beyond else args.repeats
            for scaled in (False, True)[: 1 + beyond]:
                tag = f"{length}{' scaled' if scaled else ''}"
                common = ["--text", args.hay, "--lengths", str(length)]
                found[f"needle {tag}"] = Measure(["needle", *common, "--repeats", str(repeats)], length, scaled)
                found[f"variables {tag}"] = Measure(["variables", *common, *plain, "--repeats", str(5 * repeats)], length, scaled)
        return found

    def file(self, cell: Cell) -> Path:
        return self.args.work / f"{cell.measure}-{cell.row}.json".replace(" ", "-")

    def run(self, cell: Cell, place: str) -> None:
        (model, flags), measure = self.rows[cell.row], self.measures[cell.measure]
        size = ["--batch", "8", "--kv-gib", "2"] if place == "cpu" else ["--batch", "64", "--kv-gib", "6"]
        command = [self.args.winnow, "eval", *measure.arguments, "--model", str(self.stretched(model, measure.length, measure.scaled)),
                   *flags, "--device", place, "--threads", "1", *size, "--out", str(self.file(cell))]  # fmt: skip
        began = time.time()
        done = subprocess.run(command, capture_output=True, text=True)
        failed = f": {done.stderr.strip()[-300:]}" if done.returncode != 0 else ""
        print(f"{cell.row}: {cell.measure}: {time.time() - began:.1f} s on {place}{failed}", flush=True)

    def fill(self) -> None:
        """Devices take the batched rules first, processors those that go token by token, cheap ones first."""
        cells = [Cell(row, measure) for row in self.rows for measure in self.measures]
        cells = [cell for cell in cells if not self.file(cell).exists()]
        cells.sort(key=lambda cell: (cell.one_by_one(), -self.measures[cell.measure].length))
        queue = deque(cells)

        def work(place: str) -> None:
            while True:
                with self.lock:
                    if not queue or (place == "cpu" and len(self.args.places) > 1 and not queue[-1].one_by_one()):
                        return
                    cell = queue.pop() if place == "cpu" else queue.popleft()
                self.run(cell, place)

        workers = [place for name, jobs in (p.split("=") for p in self.args.places) for place in [name] * int(jobs)]
        with ThreadPoolExecutor(len(workers)) as pool:
            list(pool.map(work, workers))

    def results(self) -> dict[str, dict[str, dict]]:
        """Row -> measure -> what `winnow eval` said; what is missing is left out."""
        found = {}
        for row in self.rows:
            files = {measure: self.file(Cell(row, measure)) for measure in self.measures}
            found[row] = {measure: json.loads(file.read_text()) for measure, file in files.items() if file.exists()}
        return found


def quality(result: dict | None) -> str:
    if result is None:
        return "-"
    if "perplexity" in result:
        return f"{result['perplexity']:.2f} | {result.get('kld', 0.0):.4f}"
    return f"{100 * result['accuracy']:.0f} ± {100 * result['accuracy_error']:.0f}"


def line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def markdown(table: dict, measures: list[str]) -> str:
    """Two tables: how well, and for what of the cache."""
    heads = [f"{m.removeprefix('text ')} | KLD" if m.startswith("text ") else m for m in measures]
    text = line("cache", *heads) + "|---" * (line(*heads).count("|")) + "|\n"
    for row, results in table.items():
        text += line(row, *(quality(results.get(m)) if m in results or not m.startswith("text") else "- | -" for m in measures))
    cost = next((m for m in measures if m.startswith("needle")), measures[-1])
    heads = [f"{m.removeprefix('text ')}: CR" for m in measures]
    text += "\n" + line("cache", *heads, f"{cost}: KiB", "KV reads", "peak") + "|---" * (len(heads) + 4) + "|\n"
    for row, results in table.items():
        ratios = [f"{results[m]['compression_ratio']:.2f}" if m in results else "-" for m in measures]
        costs = ["-"] * 3
        if cost in results:
            found = results[cost]
            costs = [f"{found['kv_bytes'] / 1024:.0f}", f"{found['kv_reads']:.0f}", f"{found['peak_tokens']:.0f}"]
        text += line(row, *ratios, *costs)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--winnow", default="build/release/bin/winnow")
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--students", nargs="*", default=[], metavar="NAME=DIR")
    parser.add_argument("--text", nargs="+", required=True, metavar="NAME=FILE", help="held-out texts")
    parser.add_argument("--hay", required=True, help="text for needle and variables")
    parser.add_argument("--lengths", type=lambda s: [int(n) for n in s.split(",")], default=[4096, 8192])
    parser.add_argument("--eval-tokens", type=int, default=32768, help="of each text")
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=10,
                        help="needles per depth, half beyond the positions; variables: five times as many texts")  # fmt: skip
    parser.add_argument("--places", nargs="+", default=["cpu=2"], metavar="DEVICE=JOBS",
                        help="where to compute, and how many runs at a time; a small model leaves a device idle")  # fmt: skip
    parser.add_argument("--rows", default="", help="regular expression")
    parser.add_argument("--measures", default="", help="regular expression")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    table = Table(args)
    table.fill()
    results = table.results()
    lines = [json.dumps({"row": row, "measure": m, "result": r}) for row, found in results.items() for m, r in found.items()]
    args.out.with_suffix(".json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
    text = markdown(results, list(table.measures))
    args.out.with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
