"""The DMS paper's tables 1 and 2 in our terms: every rule and ratio on one base model, and its students.

    python3 benchmarks/quality.py --base assets/base --students dms-2=DIR dms-4=DIR dmc-2=DIR ... \\
        --text docs=docs.txt wiki=wiki.txt --hay essays.txt --device cuda:0 --jobs 8 --work WORK --out quality.json

A student's name is what the table shows; its rule is its checkpoint's. Lengths beyond the base's positions
(--lengths 4096,8192) are measured on copies whose config.json allows them, as they are and with RoPE's base
raised for the length (NTK-aware scaling). Results that are in WORK are not made again. Writes OUT and, beside
it, a table in Markdown.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "assets/make"))
import tasks  # noqa: E402

RATIOS = (2, 3, 4, 8)
PROBLEMS = {"arithmetic": tasks.arithmetic, "equations": tasks.linear_equation}
QUANTISED = ("fp8", "int8", "int4")


def accepted_formats(winnow: str) -> list[str]:
    shown = subprocess.run([winnow, "eval", "perplexity", "--help"], capture_output=True, text=True).stdout
    line = shown[shown.index("--kv-dtype") :].split("--", 2)[1] if "--kv-dtype" in shown else ""
    return [kind for kind in QUANTISED if kind in line]


def configurations(students: dict[str, Path], formats: list[str]) -> dict[str, tuple[str, list[str]]]:
    """Name -> (model, flags)"""
    rows: dict[str, tuple[str, list[str]]] = {"dense": ("base", [])}
    rows |= {f"dense {kind}": ("base", ["--kv-dtype", kind]) for kind in formats}
    for rule in ("h2o", "tova", "streaming", "quest"):
        rows |= {f"{rule} {ratio}": ("base", ["--cache", rule, "--cr", str(ratio)]) for ratio in RATIOS}
    for name in students:
        rows[name.replace("-", " ")] = (name, [])
    for name in [name for name in students if name in ("dms-4", "dms-8")]:
        rows |= {f"{name.replace('-', ' ')} {kind}": (name, ["--kv-dtype", kind]) for kind in formats}
    rows |= {f"quest 4 {kind}": ("base", ["--cache", "quest", "--cr", "4", "--kv-dtype", kind]) for kind in formats[:1]}
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
        self.rows = configurations({n: d for n, d in self.models.items() if n != "base"}, accepted_formats(args.winnow))
        self.measures = self.list_measures()

    def stretched(self, model: str, length: int, scaled: bool) -> Path:
        """A model whose config.json allows `length` tokens, and raises RoPE's base for them if `scaled`."""
        source = self.models[model]
        if length <= self.positions:
            return source
        target = self.args.work / f"models/{model}-{length}{'-ntk' if scaled else ''}"
        if not (target / "config.json").exists():
            target.mkdir(parents=True, exist_ok=True)
            for file in source.iterdir():
                if file.is_file() and file.name != "config.json":
                    os.symlink(file.resolve(), target / file.name)
            config = json.loads((source / "config.json").read_text())
            config["max_position_embeddings"] = length
            if scaled:
                dim = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
                config["rope_theta"] *= (length / self.positions) ** (dim / (dim - 2))
            (target / "config.json").write_text(json.dumps(config, indent=2))
        return target

    def list_measures(self) -> dict[str, tuple[list[str], int, bool]]:
        """Name -> (arguments of winnow eval, length, RoPE scaled)"""
        args = self.args
        windows = ["--context", str(self.positions), "--max-tokens", str(args.eval_tokens), "--reference", str(args.base)]
        found = {}
        for text in args.text:
            name, file = text.split("=", 1)
            found[f"text {name}"] = (["perplexity", "--text", file, *windows], 0, False)
        for name, draw in PROBLEMS.items():
            file = args.work / f"{name}.jsonl"
            file.write_text(problems(args.problems, draw, 20261122))
            found[name] = (["tasks", "--task", "gsm8k", "--chat", "--data", str(file), "--max-tokens", "120"], 0, False)
        for task in args.tasks:
            name, file, tokens = task.replace("=", ":").split(":")
            found[name] = (["tasks", "--task", "gsm8k", "--chat", "--data", file, "--max-tokens", tokens], 0, False)
        hay = ["--text", args.hay]
        plain = ["--style", "plain", "--chains", "3", "--hops", "2", "--max-tokens", "80"]
        for length in args.lengths:
            for scaled in (False, True)[: 1 + (length > self.positions)]:
                tag = f"{length}{' NTK' if scaled else ''}"
                common = [*hay, "--lengths", str(length)]
                found[f"needle {tag}"] = (["needle", *common, "--repeats", str(args.repeats)], length, scaled)
                found[f"variables {tag}"] = (["variables", *common, *plain, "--repeats", str(5 * args.repeats)], length, scaled)
        return found

    def run(self, row: str, measure: str) -> dict:
        model, flags = self.rows[row]
        arguments, length, scaled = self.measures[measure]
        out = self.args.work / f"{measure}-{row}.json".replace(" ", "-")
        command = [self.args.winnow, "eval", *arguments, "--model", str(self.stretched(model, length, scaled)), *flags,
                   "--device", self.args.device, "--kv-gib", str(self.args.kv_gib), "--batch", str(self.args.batch),
                   "--out", str(out)]  # fmt: skip
        if not out.exists():
            began = time.time()
            done = subprocess.run(command, capture_output=True, text=True)
            print(f"{row}: {measure}: {time.time() - began:.1f} s", flush=True)
            if done.returncode != 0:
                print(f"  {done.stderr.strip()[-300:]}", flush=True)
                return {"error": done.stderr.strip()[-300:]}
        return json.loads(out.read_text())

    def fill(self) -> dict:
        # The slow ones first: rules whose tokens go one at a time.
        cells = sorted(((row, measure) for measure in self.measures for row in self.rows),
                       key=lambda cell: not cell[0].startswith(("h2o", "tova", "quest")))  # fmt: skip
        for row in self.rows:  # copies of models are made by one thread
            for _, length, scaled in self.measures.values():
                self.stretched(self.rows[row][0], length, scaled)
        with ThreadPoolExecutor(self.args.jobs) as pool:
            results = dict(zip(cells, pool.map(lambda cell: self.run(*cell), cells)))
        return {row: {measure: results[row, measure] for measure in self.measures} for row in self.rows}


def cell(result: dict) -> str:
    if "error" in result:
        return "-"
    if "perplexity" in result:
        return f"{result['perplexity']:.2f} | {result.get('kld', 0.0):.4f} | {result['compression_ratio']:.2f}"
    return f"{100 * result['accuracy']:.0f} ± {100 * result['accuracy_error']:.0f}"


def markdown(table: dict) -> str:
    measures = list(next(iter(table.values())))
    heads = []
    for measure in measures:
        heads += [measure.removeprefix("text "), "KLD", "CR"] if measure.startswith("text ") else [measure]
    cost = next((measure for measure in measures if measure.startswith("needle")), measures[-1])
    heads += ["CR", "KiB", "KV reads", "peak"]
    lines = [f"| cache | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for row, results in table.items():
        needle = results[cost]
        costs = ["-"] * 4
        if "error" not in needle:
            costs = [f"{needle['compression_ratio']:.2f}", f"{needle['kv_bytes'] / 1024:.0f}",
                     f"{needle['kv_reads']:.0f}", f"{needle['peak_tokens']:.0f}"]  # fmt: skip
        lines.append(f"| {row} | {' | '.join([*(cell(results[m]) for m in measures), *costs])} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--winnow", default="build/release/bin/winnow")
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--students", nargs="*", default=[], metavar="NAME=DIR")
    parser.add_argument("--text", nargs="+", required=True, metavar="NAME=FILE", help="held-out texts")
    parser.add_argument("--tasks", nargs="*", default=[], metavar="NAME=FILE:TOKENS",
                        help="more problems as GSM8K's, asked as chats, with the most tokens of an answer")  # fmt: skip
    parser.add_argument("--hay", required=True, help="text for needle and variables")
    parser.add_argument("--lengths", type=lambda s: [int(n) for n in s.split(",")], default=[4096, 8192])
    parser.add_argument("--eval-tokens", type=int, default=32768, help="of each text")
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=10, help="needles per depth; variables: five times as many texts")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--kv-gib", type=float, default=6)
    parser.add_argument("--jobs", type=int, default=8, help="runs at a time; a small model leaves a device idle")
    parser.add_argument("--only", default="", help="rows that begin so, comma-separated")
    parser.add_argument("--measures", default="", help="regular expression of columns")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    table = Table(args)
    if args.only:
        table.rows = {row: what for row, what in table.rows.items() if row.startswith(tuple(args.only.split(",")))}
    table.measures = {name: what for name, what in table.measures.items() if re.search(args.measures, name)}
    results = table.fill()
    args.out.write_text(json.dumps(results, indent=1) + "\n")
    text = markdown(results)
    args.out.with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
