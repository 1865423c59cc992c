"""Quality over training tokens for DMS, DMC and GQA, DMS's windows, and an adapter; several seeds each.

    python3 benchmarks/retrofit_curves.py --base assets/base --data tokens --text docs=docs.txt prose=prose.txt \\
        --hay essays.txt --work WORK --out docs/results/retrofit-curves.jsonl --jobs 4 --seconds 3600

Each point of a curve is a run of its own with its own schedule: one that stops half-way has not reached its
ratio, nor lowered its learning rate. OUT gets a line for each run when it ends: the command, its metrics, and what
`winnow eval` says with the cache of inference. Runs that have a line are not made again.
`scripts/plot_retrofit_curves.py` reads it.
"""

import argparse
import json
import re
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from retrofits import LENGTH, Runner, add_arguments

SHARES = (8, 4, 2, 1)  # a curve's points: these fractions of all updates


@dataclass
class Plan:
    """One run: a method at a target with a number of updates and a seed."""

    method: str
    target: int
    updates: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.method}-cr{self.target}-{self.updates}-seed{self.seed}"

    def recipe(self) -> list[str]:
        """What follows `winnow`: schedules in proportion to the updates."""
        tenth, half = str(max(1, round(0.1 * self.updates))), str(max(1, round(0.5 * self.updates)))
        common = ["--steps", str(self.updates), "--warmup", tenth, "--seed", str(self.seed)]
        if self.method == "gqa":
            return ["train", "--kv-heads", "1", "--lr", "1e-3", *common]
        phases = ["--target-cr", str(self.target), "--ramp-steps", half, *common]
        if self.method == "dmc":
            # A decision of DMC is one channel of a key without DMS's scale of 100, so it takes larger steps.
            return ["retrofit", "--method", "dmc", "--decision-lr", "1e-2", "--fade-steps", tenth, *phases]
        window = ["--window", re.sub(r"\D", "", self.method)]
        if self.method.startswith("adapter"):
            return ["retrofit", "--decisions", "adapter", "--decision-lr", "3e-4", *window, *phases]
        # Few updates must move decisions as far as many do.
        rate = f"{1e-5 * max(1.0, 300 / self.updates):.2g}"
        return ["retrofit", "--decision-lr", rate, "--fade-steps", tenth, *window, *phases]


def plans(updates: int, seeds: int) -> list[Plan]:
    """The most telling first."""
    every_seed = range(1, seeds + 1)
    points = [max(1, updates // share) for share in SHARES]
    result = [Plan(method, 2, n, seed) for seed in every_seed for n in points for method in ("dms64", "dmc", "gqa")]
    at_four = ("dms64", "dmc", "dms16", "dms256", "adapter64")
    result += [Plan(method, 4, updates, seed) for seed in every_seed for method in at_four]
    result += [Plan(method, 4, n, seed) for seed in every_seed for n in points[:-1] for method in ("dms64", "dmc")]
    return result


class Curves:
    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.runner = Runner(args)
        self.lock = threading.Lock()
        self.began = time.time()
        lines = args.out.read_text().splitlines() if args.out.exists() else []
        self.done = {json.loads(line)["name"] for line in lines}
        self.took: dict[int, float] = {}  # updates -> most seconds of a run, with its measurements

    def store(self, record: dict) -> None:
        with self.lock, self.args.out.open("a") as out:
            out.write(json.dumps(record) + "\n")

    def expected(self, updates: int) -> float:
        """Seconds that a run will take beside as many others as before; 0 while none has ended."""
        with self.lock:
            paces = [seconds / n for n, seconds in self.took.items()]
            return self.took.get(updates, updates * max(paces, default=0.0))

    def measure_base(self) -> None:
        if "base" not in self.done:
            held_out = {**self.runner.measure_texts(self.args.base), **self.runner.measure_tasks(self.args.base)}
            self.store({"name": "base", "held_out": held_out})

    def run(self, plan: Plan) -> None:
        if plan.name in self.done:
            return
        began = time.time()
        if began - self.began + self.expected(plan.updates) > self.args.seconds:
            print(f"{plan.name}: left out, would not end within {self.args.seconds:.0f} s", flush=True)
            return
        model, trained = self.runner.train(plan.name, plan.recipe())
        held_out = self.runner.measure_texts(model)
        if plan.updates == self.args.updates:  # the end of a curve stands for its method
            held_out |= self.runner.measure_tasks(model)
        shutil.rmtree(model)
        tokens = plan.updates * self.args.batch * LENGTH
        self.store({**vars(plan), "tokens": tokens, **trained, "held_out": held_out})
        with self.lock:
            self.took[plan.updates] = max(self.took.get(plan.updates, 0.0), time.time() - began)
        report = ", ".join(f"{t} CR {held_out[t]['compression_ratio']:.2f} KLD {held_out[t]['kld']:.4f}" for t in self.runner.texts)
        print(f"{time.time() - self.began:.0f} s: {plan.name}, {trained['seconds']:.0f} s: {report}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--updates", type=int, default=200, help="of the longest runs")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1e9, help="no run starts that would end later")
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.work.mkdir(parents=True, exist_ok=True)
    curves = Curves(args)
    chosen = [plan for plan in plans(args.updates, args.seeds) if re.search(args.only, plan.name)]
    with ThreadPoolExecutor(args.jobs) as pool:
        waiting = [pool.submit(curves.measure_base), *(pool.submit(curves.run, plan) for plan in chosen)]
        for done in as_completed(waiting):  # told at once: a lease may end before the last run does
            if error := done.exception():
                print(error, flush=True)
    raise SystemExit(1 if any(done.exception() for done in waiting) else 0)


if __name__ == "__main__":
    main()
