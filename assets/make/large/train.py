"""Trains the base and its DMS students on one CUDA device or more: a run that is cut goes on when called again.

    python train.py --work WORK --gsm8k FILE --winnow winnow [--ranks 2]
        [--base-seconds 370] [--student-seconds 310] [--limit 540]

WORK is what tokens.py made. It gets
    data/            training windows (windows.py), tokenised
    calibration.txt  text of some windows, for rules that want statistics of the model's queries
    plan.json        measured tokens per second, and the steps that fit the given seconds
    base/            the base: Muon, far dropout
    students/        one retrofit; step-N holds the student at each of --ratios, the folder itself the last one
    models.json      name -> folder of every model

Exit status 75 says that --limit came before the end.
"""

import argparse
import json
import math
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

MAKE = Path(__file__).resolve().parent
AGAIN = 75
WINDOWS_SEED, BASE_SEED, STUDENT_SEED = 1, 1, 2

BASE = "--optimizer muon --lr 2e-3 --weight-decay 0.3 --epsilon 1e-8 --schedule linear --decay-share 0.6 --final-lr 0"
# Three of 32 KV heads always see everything, as in the demo model.
FAR = "--far-dropout 0.92 --far-mixed 0.12 --far-window 64 --far-heads 3:0,5:0,6:1"
STUDENT = "--window 64 --lr 5e-5 --decision-lr 1e-5 --ramp parabola"
FADE_SHARE, RAMP_SHARE = 0.06, 0.68  # of a student's steps
# A retrofit also runs the teacher: 8 products of every weight instead of 6.
STUDENT_SPEED = 0.72
PROBE_STEPS = 24
CALIBRATION_CHARACTERS = 100_000
SHORTEST_CALL = 30  # seconds: with less until the limit no run is begun


class Stages:
    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.began = time.monotonic()

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.began:.0f} s] {text}", flush=True)

    def left(self) -> float:
        return self.args.limit - (time.monotonic() - self.began)

    def winnow(self, *command: str) -> None:
        """Runs winnow until the limit, then has it write a checkpoint, and exits."""
        process = subprocess.Popen([self.args.winnow, *command])
        try:
            status = process.wait(timeout=max(self.left(), 1))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            process.wait()
            self.say("the limit came; the same command goes on")
            raise SystemExit(AGAIN) from None
        if status != 0:
            raise SystemExit(f"winnow {command[0]}: exit status {status}")

    def common(self, seed: int, batch: int, steps: int, warmup: int) -> list[str]:
        args = self.args
        return [
            *("--data", str(args.work / "data"), "--device", args.device, "--seed", str(seed)),
            *("--length", str(args.length), "--batch", str(batch), "--data-parallel", str(args.ranks)),
            *("--micro-batch", str(min(args.micro_batch, batch // args.ranks))),
            *("--steps", str(steps), "--warmup", str(min(warmup, steps // 4))),
        ]

    def train(self, out: Path, start: list[str], command: list[str]) -> None:
        """Begins a run, or goes on with it; done is done."""
        if (out / "done").exists():
            return
        if self.left() < SHORTEST_CALL:
            raise SystemExit(AGAIN)
        resume = ["--resume"] if (out / "training/state.safetensors").exists() else []
        if not resume:
            shutil.rmtree(out, ignore_errors=True)
        self.winnow(*start, "--out", str(out), *command, *resume)
        (out / "done").touch()

    def data(self) -> None:
        args, data = self.args, self.args.work / "data"
        if (data / "manifest.json").exists():
            return
        mix = args.work / "mix"
        subprocess.run(
            [sys.executable, MAKE / "windows.py", "--work", args.work, "--gsm8k", args.gsm8k,
             "--tokens", str(args.tokens), "--seed", str(WINDOWS_SEED), "--out", mix], check=True)  # fmt: skip
        self.say("windows are written")
        (args.work / "calibration.txt").write_text(beginning(mix, CALIBRATION_CHARACTERS))
        files = [str(path) for path in sorted(mix.glob("*.jsonl"))]
        self.winnow("tokenize-data", "--model", str(args.work / "shape"), "--data", *files, "--out", str(data))
        shutil.rmtree(mix)
        self.say("windows are tokenised")

    def base_flags(self, steps: int) -> list[str]:
        return [*self.common(BASE_SEED, self.args.base_batch, steps, warmup=60), *BASE.split(), *FAR.split()]

    def plan(self) -> dict:
        """The steps for which there is time, from the speed of a few."""
        args, file = self.args, self.args.work / "plan.json"
        if file.exists():
            return json.loads(file.read_text())
        probe = args.work / "probe"
        shutil.rmtree(probe, ignore_errors=True)
        self.winnow("train", "--init", str(args.work / "shape"), "--out", str(probe),
                    *self.base_flags(PROBE_STEPS), "--save-every", "0")  # fmt: skip
        seconds = [step["seconds"] for step in metrics(probe)]
        rate = args.base_batch * args.length / statistics.median(seconds[PROBE_STEPS // 2 :])
        shutil.rmtree(probe)
        plan = {
            "tokens_per_second": round(rate),
            "base_steps": max(100, int(args.base_seconds * rate / (args.base_batch * args.length))),
            "student_steps": max(100, int(args.student_seconds * rate * STUDENT_SPEED / (args.student_batch * args.length))),
        }  # fmt: skip
        plan["base_epochs"] = round(plan["base_steps"] * args.base_batch * args.length / args.tokens, 2)
        file.write_text(json.dumps(plan) + "\n")
        self.say(f"plan: {plan}")
        return plan

    def base(self, steps: int) -> None:
        self.train(self.args.work / "base", ["train", "--init", str(self.args.work / "shape")],
                   [*self.base_flags(steps), "--save-every", "600"])  # fmt: skip
        self.say("the base is trained")

    def students(self, steps: int) -> None:
        args = self.args
        fade, ramp, target = round(steps * FADE_SHARE), round(steps * RAMP_SHARE), args.ratios[-1]
        keep = {ratio: fade + ramp_step(ramp, target, ratio) for ratio in args.ratios[:-1]}
        out = args.work / "students"
        self.train(out, ["retrofit", "--model", str(args.work / "base")],
                   [*self.common(STUDENT_SEED, args.student_batch, steps, warmup=30), *STUDENT.split(), "--save-every", "600",
                    "--fade-steps", str(fade), "--ramp-steps", str(ramp), "--target-cr", str(target),
                    "--keep-at", ",".join(map(str, keep.values()))])  # fmt: skip
        folders = {ratio: out / f"step-{step}" for ratio, step in keep.items()} | {target: out}
        models = {"base": str(args.work / "base")} | {
            f"dms-{name}": str(folders[ratio]) for name, ratio in zip(args.names, args.ratios)
        }
        (args.work / "models.json").write_text(json.dumps(models) + "\n")
        self.say("the students are trained")


def ramp_step(ramp: int, target: float, ratio: float) -> int:
    """The step of a parabola's ramp to `target` that has this ratio (src/train/schedule.cc)."""
    done = 1 - math.sqrt(1 - (1 - 1 / ratio) / (1 - 1 / target))
    return math.ceil(ramp * done) + 1


def beginning(mix: Path, characters: int) -> str:
    """Text of the first windows."""
    text = ""
    with open(min(mix.glob("*.jsonl")), encoding="utf-8") as windows:
        while len(text) < characters and (line := windows.readline()):
            text += "".join(part["text"] for part in json.loads(line)["parts"]) + "\n\n"
    return text


def metrics(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "training/metrics.jsonl").read_text().splitlines()]


def numbers(text: str) -> list[float]:
    return [float(word) for word in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--gsm8k", type=Path, required=True)
    parser.add_argument("--winnow", default="build/cuda/bin/winnow")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tokens", type=int, default=190_000_000, help="of different windows")
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--base-batch", type=int, default=16)
    parser.add_argument("--student-batch", type=int, default=8)
    parser.add_argument("--micro-batch", type=int, default=8)
    parser.add_argument("--ranks", type=int, default=1, help="devices, each of which takes its share of a batch")
    parser.add_argument("--base-seconds", type=float, default=370)
    parser.add_argument("--student-seconds", type=float, default=310)
    # Targets do not count the window of 64 tokens, which costs some of the measured ratio.
    parser.add_argument("--ratios", type=numbers, default=[4.5, 9.5, 20.0], help="targets, the last one of the run's end")
    parser.add_argument("--names", type=lambda text: text.split(","), default=["4", "8", "16"])
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds after which this call ends")
    args = parser.parse_args()

    stages = Stages(args)
    stages.data()
    plan = stages.plan()
    stages.base(plan["base_steps"])
    stages.students(plan["student_steps"])


if __name__ == "__main__":
    main()
