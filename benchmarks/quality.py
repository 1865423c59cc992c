"""The DMS paper's tables 1 and 2 in our terms: every rule and ratio on one base model, and its students.

    python3 benchmarks/quality.py --base assets/base --students dms-4=DIR dmc-2=DIR ... --budgets dms-4 --text docs=docs.txt \\
        --hay essays.txt --formats 'dense=fp8,q4' --places cuda:0=6 cuda:1=6 cpu=24 --work WORK --out quality

A student's name is what the tables show; its rule is its checkpoint's. Problems are asked after eight others, as
turns of one chat. Lengths beyond the base's positions are measured on copies whose config.json allows them, as
they are and with RoPE scaled as in Llama 3.1. Results that are in WORK are not made again: a run that was
interrupted goes on. Writes OUT.json (a line per result, as `winnow eval` gave it) and the tables, OUT.md; without
--places of what is there.
"""

import argparse
import json
import os
import re
import shutil
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
import reasoning  # noqa: E402
import tasks  # noqa: E402

# Rules that need no training, and those that give a DMS student a budget.
UNTRAINED = ("random", "streaming", "h2o", "tova", "vatp", "snapkv", "pyramidkv", "rkv", "expected_attention", "triattention", "quest")
BUDGETS = ("dms_quest", "dms_budget")
CALIBRATED = ("triattention",)
OF_PROMPTS = ("snapkv", "pyramidkv", "expected_attention")  # shrink nothing else, and a text counts as an answer
ONE_BY_ONE = ("random", "h2o", "tova", "vatp")  # take tokens one at a time: for a small model a device is not faster than a few cores
PROBLEMS = {"arithmetic": tasks.arithmetic, "equations": tasks.linear_equation, "stories": tasks.word_problem}
SHOTS = 8
CALIBRATION = "calibration.safetensors"


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


def configurations(args: argparse.Namespace, students: list[str]) -> dict[str, tuple[str, list[str]]]:
    """Name -> (model, flags); a row of --formats is followed by the same with other formats of entries."""
    ratios, formats = args.ratios.split(","), {row: kinds.split(",") for row, kinds in (f.split("=", 1) for f in args.formats)}
    plain: dict[str, tuple[str, list[str]]] = {"dense": ("base", [])}
    for rule in args.rules.split(","):
        statistics = ["--calibration", str(args.work / CALIBRATION)] if rule in CALIBRATED else []
        plain |= {f"{rule} {ratio}": ("base", ["--cache", rule, "--cr", ratio, *statistics]) for ratio in ratios}
    for student in students:
        name = student.replace("-", " ")
        plain[name] = (student, [])
        if student in args.budgets:
            plain |= {f"{rule} {ratio} on {name}": (student, ["--cache", rule, "--cr", ratio]) for rule in BUDGETS for ratio in ratios}
    rows = {}
    for name, (model, flags) in plain.items():
        rows[name] = (model, flags)
        rows |= {f"{name} {kind}": (model, [*flags, "--kv-dtype", kind]) for kind in formats.get(name, [])}
    return rows


def expand(places: list[str]) -> list[str]:
    """DEVICE=JOBS, ...: a device for each run that goes at a time."""
    return [device for device, jobs in (place.split("=") for place in places) for _ in range(int(jobs))]


def threads_each(runs: int) -> int:
    """Of each of so many runs on devices."""
    return max(2, (os.cpu_count() or 1) // max(1, runs))


def problems(count: int, draw, seed: int) -> str:
    rng = Random(seed)
    lines = []
    for _ in range(count):
        problem = draw(rng)
        lines.append(json.dumps({"question": problem.question, "answer": f"{problem.answer}\n#### {problem.result}"}))
    return "\n".join(lines) + "\n"


def programs(count: int, longest: int, seed: int) -> str:
    """Register programs, whose worked solutions are up to `longest` tokens long."""
    rng = Random(seed)
    drawn = (reasoning.problem(rng, longest=longest) for _ in range(count))
    return "".join(json.dumps({"question": p.question, "answer": f"{p.solution}\n#### {p.result:03d}"}) + "\n" for p in drawn)


class Table:
    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.models = {"base": args.base} | {n: Path(d) for n, d in (s.split("=", 1) for s in args.students)}
        self.positions = json.loads((args.base / "config.json").read_text())["max_position_embeddings"]
        rows = configurations(args, [name for name in self.models if name != "base"])
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
            file, shots = args.work / f"{name}-{args.problems}.jsonl", args.work / f"{name}-shots.jsonl"
            for path, count, seed in ((file, args.problems, 20261122), (shots, SHOTS + 1, 7)):
                if not path.exists():
                    path.write_text(problems(count, draw, seed))
            found[name] = Measure(["tasks", "--task", "gsm8k", "--chat", "--data", str(file), "--shots", str(SHOTS),
                                   "--shots-data", str(shots), "--max-tokens", "120"])  # fmt: skip
        if args.programs:
            file, longest = args.work / f"programs-{args.programs}.jsonl", min(reasoning.LONGEST, self.positions // 2)
            if not file.exists():
                file.write_text(programs(args.programs, longest, 20261122))
            found["programs"] = Measure(["tasks", "--task", "gsm8k", "--chat", "--data", str(file), "--max-tokens", str(longest)])
        if args.samples:
            files = [flag for task in ("squad", "hotpot") if (file := getattr(args, task)) for flag in (f"--{task}", str(file))]
            found["ruler"] = Measure(["ruler", "--text", str(args.hay), "--lengths", str(args.ruler_length),
                                      "--samples", str(args.samples), *files], args.ruler_length)  # fmt: skip
        plain = ["--style", "plain", "--chains", "3", "--hops", "2", "--max-tokens", "80"]
        for length in map(int, args.lengths.split(",")):
            beyond = length > self.positions
            repeats = args.repeats // 2 if beyond else args.repeats
            for scaled in (False, True)[: 1 + beyond]:
                tag = f"{length}{' scaled' if scaled else ''}"
                common = ["--text", str(args.hay), "--lengths", str(length)]
                found[f"needle {tag}"] = Measure(["needle", *common, "--repeats", str(repeats)], length, scaled)
                found[f"variables {tag}"] = Measure(["variables", *common, *plain, "--repeats", str(5 * repeats)], length, scaled)
        return found

    def file(self, cell: Cell) -> Path:
        return self.args.work / f"{cell.measure}-{cell.row}.json".replace(" ", "-")

    def left_out(self, cell: Cell) -> bool:
        """What winnow refuses; and what takes long and tells little: a base that is lost beyond its positions, under rules
        that go one by one."""
        measure = self.measures[cell.measure]
        if cell.measure.startswith("text ") and cell.row.startswith(OF_PROMPTS):
            return True
        return cell.one_by_one() and measure.length > self.positions and not measure.scaled

    def run(self, cell: Cell, place: str) -> tuple[bool, str]:
        """Whether it went well; how long it took, or what went wrong."""
        (model, flags), measure = self.rows[cell.row], self.measures[cell.measure]
        size = ["1", "--batch", "8", "--kv-gib", "2"] if place == "cpu" else [str(self.threads), "--batch", "64", "--kv-gib", "6"]
        command = [self.args.winnow, "eval", *measure.arguments, "--model", str(self.stretched(model, measure.length, measure.scaled)),
                   *flags, "--device", place, "--threads", *size, "--out", str(self.file(cell))]  # fmt: skip
        began = time.time()
        done = subprocess.run(command, capture_output=True, text=True)
        said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return done.returncode == 0, f"{time.time() - began:.1f} s on {place}" if done.returncode == 0 else said[-1]

    def calibrate(self) -> None:
        """Statistics of the base's queries, where a rule wants them."""
        file = self.args.work / CALIBRATION
        if not file.exists() and any(str(file) in flags for _, flags in self.rows.values()):
            text = self.args.calibration_text or self.args.text[0].split("=", 1)[1]
            subprocess.run([self.args.winnow, "calibrate", "--model", self.args.base, "--text", text, "--output", file], check=True)

    def fill(self) -> int:
        """Devices take the batched rules first, processors those that go token by token, cheap ones first. Returns how
        many runs failed."""
        wanted = [cell for row in self.rows for measure in self.measures if not self.left_out(cell := Cell(row, measure))]
        cells = [cell for cell in wanted if not self.file(cell).exists()]
        cells.sort(key=lambda cell: (cell.one_by_one(), -self.measures[cell.measure].length))
        queue = deque(cells)
        workers = expand(self.args.places)
        self.threads = threads_each(len(workers))
        has_device = any(place != "cpu" for place in workers)
        began, done, failed = time.time(), len(wanted) - len(cells), 0
        if cells and workers:
            self.calibrate()

        def work(place: str) -> None:
            nonlocal done, failed
            while True:
                with self.lock:
                    if not queue or (place == "cpu" and has_device and not queue[-1].one_by_one()):
                        return
                    cell = queue.pop() if place == "cpu" else queue.popleft()
                well, told = self.run(cell, place)
                with self.lock:
                    done += 1
                    failed += not well
                    minutes = (time.time() - began) / 60
                    print(f"[{done}/{len(wanted)}, {minutes:.1f} min] {cell.row}: {cell.measure}: {told}", file=sys.stderr, flush=True)

        with ThreadPoolExecutor(max(1, len(workers))) as pool:
            try:
                list(pool.map(work, workers))
            except KeyboardInterrupt:
                queue.clear()
                raise SystemExit("interrupted: the same command goes on where this one was") from None
        return failed

    def results(self) -> dict[str, dict[str, dict]]:
        """Row -> measure -> what `winnow eval` said; what is missing is left out."""
        found = {}
        for row in self.rows:
            files = {measure: self.file(Cell(row, measure)) for measure in self.measures}
            found[row] = {measure: json.loads(file.read_text()) for measure, file in files.items() if file.exists()}
        return found


def quality(measure: str, result: dict | None) -> str:
    if measure.startswith("text "):
        return f"{result['perplexity']:.2f} | {result['kld']:.4f}" if result else "- | -"
    if not result or not result["questions"]:
        return "-"
    share, error = result["accuracy"], result["accuracy_error"]
    if measure == "ruler":  # the mean of its tasks, which give a share of an answer too
        share, error = (result["by_length"][0][key] for key in ("score", "score_error"))
    return f"{100 * share:.0f}" + (f" ± {100 * error:.0f}" if error is not None else "")  # of one answer there is no error


def markdown_table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, *rows)]
    lines.insert(1, "|---" * (lines[0].count("|") - 1) + "|")
    return "\n".join(lines) + "\n"


def tables(results: dict, measures: list[str]) -> str:
    """How well, and for what of the cache."""
    head = [f"{m.removeprefix('text ')} | KLD" if m.startswith("text ") else m for m in measures]
    text = markdown_table(["cache", *head], [[row, *(quality(m, found.get(m)) for m in measures)] for row, found in results.items()])
    needle = next((m for m in measures if m.startswith("needle")), None)
    rows = []
    for row, found in results.items():
        costs = ["-"] * 3
        if cost := found.get(needle):
            costs = [f"{cost['kv_bytes'] / 1024:.0f}", f"{cost['kv_reads']:.0f}", f"{cost['peak_tokens']:.0f}"]
        rows.append([row, *(f"{found[m]['compression_ratio']:.2f}" if m in found else "-" for m in measures), *costs])
    return text + "\n" + markdown_table(["CR", *(m.removeprefix("text ") for m in measures), f"KiB ({needle})", "KV reads", "peak"], rows)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--winnow", default="build/release/bin/winnow")
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--students", nargs="*", default=[], metavar="NAME=DIR")
    parser.add_argument("--rules", default=",".join(UNTRAINED), help="that need no training")
    parser.add_argument("--ratios", default="2,4,8,16", help="of these rules, and of those of --budgets")
    parser.add_argument("--budgets", nargs="*", default=[], metavar="NAME", help=f"students to measure under {' and '.join(BUDGETS)} too")
    parser.add_argument("--calibration-text", metavar="FILE",
                        help=f"text whose queries {', '.join(CALIBRATED)} expects, best none that is measured (default: the first --text)")  # fmt: skip
    parser.add_argument("--formats", nargs="*", default=[], metavar="ROW=KIND,...", help="rows to show with other formats of entries too")
    parser.add_argument("--text", nargs="+", required=True, metavar="NAME=FILE", help="held-out texts")
    parser.add_argument("--hay", required=True, help="text for needle and variables")
    parser.add_argument("--lengths", default="4096,8192")
    parser.add_argument("--eval-tokens", type=int, default=32768, help="of each text; 0: all")
    parser.add_argument("--problems", type=int, default=100)
    parser.add_argument("--programs", type=int, default=0, help="register programs (assets/make/reasoning.py)")
    parser.add_argument("--samples", type=int, default=0, help="prompts of each RULER task")
    parser.add_argument("--ruler-length", type=int, default=4096)
    parser.add_argument("--squad", type=Path, help="SQuAD 2.0 for RULER's qa_1, which is left out without it")
    parser.add_argument("--hotpot", type=Path, help="HotpotQA for qa_2")
    parser.add_argument("--repeats", type=int, default=10,
                        help="needles per depth, half beyond the positions; variables: five times as many texts")  # fmt: skip
    parser.add_argument("--places", nargs="*", default=[], metavar="DEVICE=JOBS",
                        help="where to compute, and how many runs at a time; a small model leaves a device idle")  # fmt: skip
    parser.add_argument("--rows", default="", help="regular expression")
    parser.add_argument("--measures", default="", help="regular expression")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args(arguments)


def what_is_missing(args: argparse.Namespace) -> list[str]:
    files = [Path(named.split("=", 1)[-1]) for named in [*args.text, args.hay]]
    models = [args.base, *(Path(named.split("=", 1)[-1]) for named in args.students)]
    missing = [str(file) for file in [*files, *(model / "config.json" for model in models)] if not file.is_file()]
    return missing if shutil.which(args.winnow) else [f"{args.winnow} (make build makes build/release/bin/winnow)", *missing]


def main(arguments: list[str] | None = None) -> None:
    args = parse(arguments)
    if args.places and (missing := what_is_missing(args)):
        raise SystemExit(f"{Path(sys.argv[0]).name}: error: there is no {', no '.join(missing)}")
    args.work.mkdir(parents=True, exist_ok=True)
    table = Table(args)
    failed = table.fill()
    results = table.results()
    lines = [json.dumps({"row": row, "measure": m, "result": r}) for row, found in results.items() for m, r in found.items()]
    args.out.with_suffix(".json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
    text = tables(results, list(table.measures))
    args.out.with_suffix(".md").write_text(text)
    print(text)
    if failed:
        raise SystemExit(f"{failed} runs failed: see above")


if __name__ == "__main__":
    main()
