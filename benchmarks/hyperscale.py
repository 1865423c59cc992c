"""Inference-time hyper-scaling on register programs (assets/make/reasoning.py): from the base model to the grids.

    python3 benchmarks/hyperscale.py --base assets/base --text mix.jsonl.zst --work WORK --out docs/results/hyperscale
    python3 scripts/plot_hyperscale.py docs/results/hyperscale --output docs/results/hyperscale.svg

Fine-tunes the base model on the task and some of its old data (--text, what write_jsonl.py made), retrofits
the result, and runs `winnow eval hyperscale` under every rule and ratio. With --students NAME=DIR nothing is
trained: the base knows the task. What is in WORK or OUT is not made again. OUT/NAME.json: what eval says, and
with it everything needed to run it again.
"""

import argparse
import gzip
import json
import queue
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from quality import BUDGETS, CALIBRATED, CALIBRATION, expand, threads_each

GENERATOR = Path(__file__).resolve().parent.parent / "assets/make/reasoning.py"
TRAIN_FILES, PROBLEMS_PER_FILE = 16, 2500
COMMON = "--length 4096 --batch 32 --micro-batch 32 --save-every 0".split()
FINE_TUNE = "--steps 500 --lr 1e-3 --warmup 20 --schedule linear --decay-share 0.7 --final-lr 0.05".split()
RETROFIT = "--target-cr 8 --window 16 --steps 300 --fade-steps 30 --ramp-steps 150 --lr 1e-4".split()
OFFSETS = (8,)  # of decisions, besides the one that the student was trained with: it keeps more
RULES = ("quest=4,8", "tova=2,4,8", "h2o=4", "streaming=4")


def grids(rules: list[str], students: list[str], statistics: Path) -> dict[str, tuple[str, list[str]]]:
    """Name -> (model, flags); a student's name comes before a rule that gives it a budget."""
    runs = {"dense": ("base", [])} | {name: (name, []) for name in students}
    for text in rules:
        where, ratios = text.split("=")
        model, rule = where.split(":") if ":" in where else ("base", where)
        flags = ["--cache", rule, *(["--calibration", str(statistics)] if rule in CALIBRATED else [])]
        runs |= {f"{where.replace(':', '-')}-{cr}": (model, [*flags, "--cr", cr]) for cr in ratios.split(",")}
    return runs


class Runner:
    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.began = time.time()
        devices = expand(args.places)
        self.device, self.jobs = devices[0], len(devices)
        self.idle: queue.SimpleQueue[str] = queue.SimpleQueue()
        for device in devices:
            self.idle.put(device)

    def say(self, text: str) -> None:
        print(f"[{time.time() - self.began:.0f} s] {text}", flush=True)

    def winnow(self, log: str, *command: str) -> None:
        with open(self.args.work / f"{log}.log", "w") as out:
            done = subprocess.run([self.args.winnow, *command], stdout=out, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            raise RuntimeError(f"{log}: {(self.args.work / f'{log}.log').read_text()[-600:]}")

    def generate(self, name: str, *flags: str) -> Path:
        path = self.args.work / f"{name}.jsonl"
        if not path.exists():
            subprocess.run([sys.executable, GENERATOR, *flags, "--out", path], check=True)
        return path

    def train(self, name: str, *command: str) -> None:
        model = self.args.work / name
        if (model / "model.safetensors").exists():
            return
        began = time.time()
        self.winnow(name, *command, "--data", *map(str, self.data), "--out", str(model), "--device", self.device, *COMMON)
        kept = [line for line in (model / "training/metrics.jsonl").read_text().splitlines()]
        with gzip.open(self.args.out / f"{name}-training.jsonl.gz", "wt") as out:
            out.write("\n".join(kept[:: max(1, len(kept) // 60)] + kept[-1:]) + "\n")
        self.say(f"{name}: trained in {time.time() - began:.0f} s")

    def models(self) -> dict[str, Path]:
        if self.args.students:
            return {"base": self.args.base} | {name: Path(folder) for name, folder in (s.split("=", 1) for s in self.args.students)}
        self.train_models()
        return {name: self.args.work / name for name in ("base", "dms", *(f"dms-offset{offset}" for offset in OFFSETS))}

    def train_models(self) -> None:
        with ThreadPoolExecutor(TRAIN_FILES) as pool:
            made = pool.map(lambda i: self.generate(f"train-{i}", "--train", str(PROBLEMS_PER_FILE), "--seed", str(1000 + i)),
                            range(TRAIN_FILES))  # fmt: skip
            self.data = [*made, self.args.text]
        self.say("data")
        self.train("base", "train", "--model", str(self.args.base), *FINE_TUNE)
        self.train("dms", "retrofit", "--model", str(self.args.work / "base"), *RETROFIT)
        for offset in OFFSETS:
            self.with_offset(offset)

    def with_offset(self, offset: float) -> None:
        """The same weights; only what a decision has to overcome is another."""
        source, target = self.args.work / "dms", self.args.work / f"dms-offset{offset}"
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("training"), dirs_exist_ok=True)
        config = json.loads((source / "config.json").read_text())
        (target / "config.json").write_text(json.dumps(config | {"dms_initial_alpha_offset": offset}, indent=2))

    def calibrate(self, base: Path, file: Path) -> None:
        if not file.exists() and any(text.startswith(CALIBRATED) for text in self.args.rules):
            self.winnow("calibrate", "calibrate", "--model", str(base), "--text", str(self.args.plain_text), "--output", str(file))

    def evaluate(self, name: str, model: Path, flags: list[str]) -> None:
        device = self.idle.get()
        try:
            self.evaluate_on(device, name, model, flags)
        finally:
            self.idle.put(device)

    def evaluate_on(self, device: str, name: str, model: Path, flags: list[str]) -> None:
        out = self.args.out / f"{name}.json"
        if out.exists():
            return
        began = time.time()
        args = self.args
        work = args.work / f"grid-{name}.json"
        self.winnow(f"grid-{name}", "eval", "hyperscale", "--task", "gsm8k", "--chat", "--data", str(self.test), "--lengths", args.lengths,
                    "--widths", args.widths, "--temperature", str(args.temperature), "--top-p", "1", "--model", str(model),
                    *flags, "--batch", str(args.batch), "--device", device, "--threads", str(threads_each(self.jobs)),
                    "--kv-gib", str(args.kv_gib), "--out", str(work))  # fmt: skip
        shutil.copyfile(work, out)
        best = max(json.loads(out.read_text())["points"], key=lambda point: point["accuracy"])
        self.say(f"{name}: {time.time() - began:.0f} s, CR {best['compression_ratio']:.2f}, at most {100 * best['accuracy']:.1f} % "
                 f"with L {best['length']}, W {best['width']}, {best['kv_reads']:.0f} reads, {best['peak_tokens']:.0f} entries")  # fmt: skip

    def run_grids(self, models: dict[str, Path]) -> None:
        self.test = self.generate(f"test-{self.args.problems}", "--test", str(self.args.problems), "--seed", "20261122")
        statistics = self.args.work / CALIBRATION
        self.calibrate(models["base"], statistics)
        students = [name for name in models if name != "base"]
        with ThreadPoolExecutor(self.jobs) as pool:
            started = [(name, pool.submit(self.evaluate, name, models[model], flags))
                       for name, (model, flags) in grids(self.args.rules, students, statistics).items() if re.search(self.args.only, name)]  # fmt: skip
            try:
                for name, run in started:
                    if error := run.exception():
                        self.say(f"{name}: {error}")
            except KeyboardInterrupt:
                pool.shutdown(cancel_futures=True)
                raise SystemExit("interrupted: the same command goes on where this one was") from None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--winnow", default="build/release/bin/winnow")
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--students", nargs="*", default=[], metavar="NAME=DIR", help="train nothing: measure these and --base")
    parser.add_argument("--rules", nargs="*", default=list(RULES), metavar="RULE=CR,...",
                        help=f"on the base; {' and '.join(BUDGETS)} as STUDENT:RULE")  # fmt: skip
    parser.add_argument("--text", type=Path, help="training data that is mixed in, unless --students are given")
    parser.add_argument("--plain-text", type=Path, help="a text for rules that need statistics of queries")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--places", nargs="*", default=["cuda:0=10"], metavar="DEVICE=JOBS",
                        help="where to compute, and how many grids at a time; a small model leaves a device idle")  # fmt: skip
    parser.add_argument("--problems", type=int, default=48)
    parser.add_argument("--lengths", default="512,1024,2048,4000")
    parser.add_argument("--widths", default="1,2,4,8")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--only", default="", help="regular expression of grids")
    parser.add_argument("--batch", type=int, default=48, help="problems at once")
    parser.add_argument("--kv-gib", type=float, default=10)
    args = parser.parse_args()
    if not args.students and args.text is None:
        parser.error("--text: training data, or --students")
    if args.plain_text is None and any(text.startswith(CALIBRATED) for text in args.rules):
        parser.error(f"--plain-text: {' and '.join(CALIBRATED)} needs it")
    args.work.mkdir(parents=True, exist_ok=True)
    args.out.mkdir(parents=True, exist_ok=True)
    runner = Runner(args)
    runner.run_grids(runner.models())


if __name__ == "__main__":
    main()
