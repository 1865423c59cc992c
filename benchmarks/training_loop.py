"""A training loop on the CPU: winnow's against PyTorch's, on one machine in one run.

    pip install torch numpy safetensors tokenizers
    make build
    python benchmarks/training_loop.py --output docs/results/training-loop.json

The same work in both: the model in assets/base (14.6 M parameters), --batch sequences of --length tokens,
AdamW, clipping, products in bf16, nothing recomputed; one thread. `train` is the language-model loss; `retrofit` is DMS
with a borrowed channel, teacher included, where PyTorch runs assets/make/model.py with its reference
attention (a CPU has no other). Both in turn, for --rounds rounds; tokens per second of CPU time, which
neighbours on a shared machine disturb less than they do the clock; medians over the rounds, ratios medians of
each round's.
"""

import argparse
import datetime
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from cpu_speed import cpu_name

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "assets" / "make"))

import export  # noqa: E402
from model import Dms  # noqa: E402

WINDOW = 64


def cpu_seconds_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def winnow_seconds(binary: Path, kind: str, steps: int, args: argparse.Namespace, data: Path) -> float:
    """CPU time of a whole run."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [str(binary), kind, "--model", str(ROOT / "assets/base"), "--data", str(data)]
        command += ["--out", str(Path(scratch) / "out"), "--threads", "1", "--activations", "keep"]
        command += ["--length", str(args.length), "--batch", str(args.batch), "--micro-batch", str(args.batch)]
        command += ["--steps", str(steps)]
        if kind == "retrofit":
            command += ["--window", str(WINDOW), "--fade-steps", "0"]
        before = cpu_seconds_of_children()
        subprocess.run(command, check=True, capture_output=True)
        return cpu_seconds_of_children() - before


def run_winnow(binary: Path, kind: str, args: argparse.Namespace, data: Path) -> float:
    """Tokens per second: what more steps cost more, so that loading and saving do not count."""
    few, many = (winnow_seconds(binary, kind, steps, args, data) for steps in (1, 1 + args.steps))
    return args.steps * args.batch * args.length / (many - few)


def run_torch(kind: str, args: argparse.Namespace) -> float:
    retrofit = kind == "retrofit"
    student = export.load(ROOT / "assets/base", retrofit=Dms(window=WINDOW) if retrofit else None).train()
    teacher = export.load(ROOT / "assets/base").eval().requires_grad_(False) if retrofit else None
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-5, betas=(0.9, 0.95), eps=1e-5)
    rates = []
    for _ in range(1 + args.steps):
        tokens = torch.randint(0, student.config.vocab_size, (args.batch, args.length + 1))
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        begin = time.process_time()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits, decisions = student(inputs)
            if retrofit:
                with torch.no_grad():
                    expected = F.log_softmax(teacher(inputs)[0], dim=-1)
                loss = (expected.exp() * (expected - F.log_softmax(logits, dim=-1))).sum(-1).mean()
                loss = loss - 0.1 * decisions.alpha.mean()
            else:
                loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        rates.append(args.batch * args.length / (time.process_time() - begin))
    return statistics.median(rates[1:])


def tokenise(binary: Path, folder: Path) -> Path:
    text = (ROOT / "assets/demo_prompt.txt").read_text()
    (folder / "text.jsonl").write_text(json.dumps({"text": text}) + "\n")
    subprocess.run([str(binary), "tokenize-data", "--model", str(ROOT / "assets/base"), "--data",
                    str(folder / "text.jsonl"), "--out", str(folder / "data")], check=True, capture_output=True)
    return folder / "data"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "build/release/bin/winnow")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp())
    data = tokenise(args.binary, folder)
    rounds = [
        {kind: {"winnow": run_winnow(args.binary, kind, args, data), "torch": run_torch(kind, args)}
         for kind in ("train", "retrofit")}
        for _ in range(args.rounds)
    ]
    shutil.rmtree(folder)
    print("| | PyTorch, tokens/s | winnow, tokens/s | ratio |")
    print("|---|---|---|---|")
    for kind in ("train", "retrofit"):
        rows = [r[kind] for r in rounds]
        ratio = statistics.median(r["winnow"] / r["torch"] for r in rows)
        print(f"| {kind} | {statistics.median(r['torch'] for r in rows):.0f} "
              f"| {statistics.median(r['winnow'] for r in rows):.0f} | {ratio:.2f} |")
    args.output.write_text(json.dumps({
        "date": datetime.date.today().isoformat(),
        "cpu": cpu_name(),
        "threads": 1,
        "torch": torch.__version__,
        "batch": args.batch,
        "length": args.length,
        "steps": args.steps,
        "tokens_per_cpu_second": rounds,
    }, indent=1) + "\n")


if __name__ == "__main__":
    main()
