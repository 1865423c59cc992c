"""Retrofits one base model in many ways with equal tokens and measures each: the papers' comparisons.

    python3 benchmarks/retrofits.py --base assets/base --data mix.jsonl.zst --text docs=docs.txt wiki=wiki.txt \\
        --hay essays.txt --work WORK --out docs/results/retrofits

Writes OUT/NAME.json for each run: the command, its metrics, and what `winnow eval` says with the cache of
inference. Runs whose file is there are not made again. Models stay in WORK/NAME with --keep.
"""

import argparse
import json
import re
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LENGTH = 4096


def recipes(steps: int) -> dict[str, list[str]]:
    """Name -> what follows `winnow`; all see the same number of tokens but `tokens-*`."""

    def scaled(share: float, of: int = steps) -> str:
        return str(round(share * of))

    def retrofit(cr: float, *flags: str, of: int = steps) -> list[str]:
        phases = ["--steps", str(of), "--fade-steps", scaled(0.1, of), "--ramp-steps", scaled(0.5, of)]
        return ["retrofit", "--target-cr", str(cr), *phases, *flags]

    # A decision of DMC is one channel of a key without DMS's scale of 100, so it takes larger steps.
    dmc = ["--method", "dmc", "--decision-lr", "1e-2"]
    runs = {}
    for cr in (2, 3, 4, 8):
        runs[f"dms-w64-cr{cr}"] = retrofit(cr, "--window", "64")
    for cr in (2, 4):
        runs[f"dmc-cr{cr}"] = retrofit(cr, *dmc)
    runs["gqa-cr2"] = ["train", "--kv-heads", "1", "--steps", str(steps)]
    runs["gqa-cr2-lr1e-3"] = [*runs["gqa-cr2"], "--lr", "1e-3"]
    for cr in (2, 3, 4, 8):
        runs[f"dms-w16-cr{cr}"] = retrofit(cr, "--window", "16")
    for window in (64, 16):
        runs[f"immediate-w{window}-cr4"] = retrofit(4, "--window", str(window), "--eviction", "immediate")
    runs["dms-w64-cr4-paper-loss"] = retrofit(4, "--window", "64", "--loss", "one-sided")
    for seed in ("1", "2", "3"):
        runs[f"bf16-cr8-seed{seed}"] = retrofit(8, "--window", "64", "--seed", seed)
        runs[f"fp8-cr8-seed{seed}"] = [*runs[f"bf16-cr8-seed{seed}"], "--dtype", "fp8"]
    runs["tokens-dms-half"] = retrofit(4, "--window", "16", of=steps // 2)
    runs["tokens-dmc-half"] = retrofit(4, *dmc, of=steps // 2)
    return runs


class Runner:
    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.texts = dict(text.split("=", 1) for text in args.text)

    def winnow(self, *command: str) -> str:
        done = subprocess.run([self.args.winnow, *command], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}\n{done.stderr[-2000:]}")
        return done.stdout

    def evaluate(self, measure: str, model: Path, *flags: str) -> dict:
        device = ["--device", self.args.device, "--kv-gib", "4", "--json"]
        return json.loads(self.winnow("eval", measure, "--model", str(model), *flags, *device))

    def perplexity(self, model: Path, text: str, context: int) -> dict:
        tokens = str(self.args.eval_tokens)
        found = self.evaluate("perplexity", model, "--text", text, "--context", str(context), "--max-tokens", tokens,
                              "--reference", str(self.args.base))  # fmt: skip
        keys = ["perplexity", "nll_per_token", "nll_error", "tokens", "compression_ratio", "kld", "kld_error"]
        return {key: found[key] for key in keys}

    def measure_texts(self, model: Path) -> dict:
        return {name: self.perplexity(model, text, LENGTH) for name, text in self.texts.items()}

    def measure_tasks(self, model: Path) -> dict:
        result = {}
        plain = ["--style", "plain", "--chains", "3", "--hops", "2", "--repeats", "10", "--max-tokens", "80"]
        for name, flags in {"needle": [], "variables": plain}.items():
            found = self.evaluate(name, model, "--text", self.args.hay, "--lengths", "2048,4096", *flags)
            keys = ["accuracy", "accuracy_error", "questions", "compression_ratio", "kv_reads", "peak_tokens"]
            result[name] = {key: found[key] for key in keys}
        return result

    def measure(self, model: Path) -> dict:
        result = self.measure_texts(model)
        first = next(iter(self.texts.values()))
        result["by_context"] = {n: self.perplexity(model, first, n)["compression_ratio"] for n in (512, 1536)}
        return {**result, **self.measure_tasks(model)}

    def train(self, name: str, recipe: list[str]) -> tuple[Path, dict]:
        """The model, and what its training took."""
        model = self.args.work / name
        batch = str(self.args.batch)
        command = [*recipe, "--model", str(self.args.base), "--data", *self.args.data, "--out", str(model),
                   "--length", str(LENGTH), "--batch", batch, "--micro-batch", batch, "--save-every", "0",
                   "--device", self.args.device]  # fmt: skip
        if "--lr" not in recipe:
            command += ["--lr", "1e-4"]
        began = time.time()
        self.winnow(*command)
        seconds = time.time() - began
        lines = (model / "training/metrics.jsonl").read_text().splitlines()
        metrics = [json.loads(line) for line in lines]
        kept = [m for i, m in enumerate(metrics) if i % 10 == 0 or i + 1 >= len(metrics)]
        for record in kept[:-1]:
            record.pop("evicted_per_head", None)
        return model, {"name": name, "command": ["winnow", *command], "seconds": seconds, "metrics": kept}

    def run(self, name: str, recipe: list[str]) -> None:
        out = self.args.out / f"{name}.json"
        if out.exists():
            return
        model, result = self.train(name, recipe)
        result["held_out"] = self.measure(model)
        out.write_text(json.dumps(result, indent=1) + "\n")
        report = " ".join(f"{t} CR {r['compression_ratio']:.2f} KLD {r['kld']:.4f}" for t, r in result["held_out"].items() if t in self.texts)
        print(f"{name}: {result['seconds']:.0f} s, {report}, needle {result['held_out']['needle']['accuracy']}", flush=True)
        if not self.args.keep:
            shutil.rmtree(model)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What every comparison of retrofits takes."""
    parser.add_argument("--winnow", default="build/release/bin/winnow")
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--data", nargs="+", required=True, help="JSONL, or one folder of tokenize-data")
    parser.add_argument("--text", nargs="+", required=True, metavar="NAME=FILE", help="held-out texts")
    parser.add_argument("--hay", required=True, help="text for needle and variables")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--batch", type=int, default=16, help=f"sequences of {LENGTH} tokens per update")
    parser.add_argument("--eval-tokens", type=int, default=65536, help="of each text")
    parser.add_argument("--only", default="", help="regular expression of names")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time; small models leave a device idle")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--keep", action="store_true", help="keep the models")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    args.work.mkdir(parents=True, exist_ok=True)
    runner = Runner(args)
    base = args.out / "base.json"
    if not base.exists():
        base.write_text(json.dumps({"name": "base", "held_out": runner.measure(args.base)}, indent=1) + "\n")
    chosen = [(name, recipe) for name, recipe in recipes(args.steps).items() if re.search(args.only, name)]
    with ThreadPoolExecutor(args.jobs) as pool:
        failed = [error for done in [pool.submit(runner.run, *run) for run in chosen] if (error := done.exception())]
    for error in failed:
        print(error)
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
