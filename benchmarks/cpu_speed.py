"""CPU speed of winnow against llama.cpp, on one machine in one run.

    pip install llama-cpp-python gguf numpy
    python benchmarks/cpu_speed.py --output docs/results/cpu-speed.json
    python benchmarks/cpu_speed.py --shape llama-3.2-1b --formats bf16 --rounds 2 --output FILE

Runs every configuration in turn, winnow and llama.cpp alternating, for --rounds rounds: one
sequence at depths 0 and 8,192, and several that decode together at 8,192. Reports the median over
the rounds of each rate, and of each round's ratio to llama.cpp in that round: these figures are
about the ratio, the machine may be noisy.
"""

import argparse
import datetime
import json
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
DEPTH = 8192
DMS = ("--cache", "dms", "--cr", "8", "--window", "256", "--kv-dtype", "fp8")
# winnow's format of weights -> that of llama.cpp against which it is held
FORMATS = {"bf16": "bf16", "int8": "q8_0", "int4": "q4_0"}


class System(NamedTuple):
    """What is measured: an engine with its flags at a depth, with several sequences or one."""
    name: str
    weights: str
    flags: tuple
    depth: int
    batch: int

    @property
    def is_peer(self) -> bool:
        return self.name.startswith("llama.cpp")


def winnow_systems(weights: str, parallel: int) -> list[System]:
    flags = () if weights == "bf16" else ("--weights", weights)
    name = f"winnow {weights}"
    systems = [System(f"{name}, dense cache", weights, flags, 0, 1),
               System(f"{name}, DMS CR 8, fp8", weights, flags + DMS, DEPTH, 1)]
    if weights == "bf16":
        systems.append(System(f"{name}, dense cache, deterministic", weights, ("--deterministic",),
                              0, 1))
    if parallel > 1:
        systems += [System(f"{name}, dense cache", weights, flags, DEPTH, parallel),
                    System(f"{name}, DMS CR 8, fp8", weights, flags + DMS, DEPTH, parallel)]
    return systems


def run_winnow(system: System, args: argparse.Namespace) -> dict:
    lengths = (["--depth", str(system.depth), "--prefill", "512", "--repeat", str(args.repeat)]
               if system.batch == 1 else
               ["--context", str(system.depth), "--batch", str(system.batch), "--computed", "1",
                "--repeat", "1"])
    command = [str(args.binary), "bench", "--shape", args.shape, *lengths, "--generate",
               str(args.generate), "--threads", str(args.threads), "--json", *system.flags]
    result = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return dict(result, command=" ".join(["winnow", *command[1:]]), depth=system.depth)


def run_llama_cpp(weights: str, args: argparse.Namespace) -> dict[System, dict]:
    kind = FORMATS[weights]
    command = [sys.executable, str(HERE / "llama_cpp_peer.py"), "--shape", args.shape, "--type",
               kind, "--threads", str(args.threads), "--parallel", str(args.parallel), "--depth",
               "0", str(DEPTH), "--decode", str(args.generate), "--repeat", str(args.repeat)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    shown = "python benchmarks/" + " ".join([Path(command[1]).name, *command[2:]])
    runs = {}
    for line in output.splitlines():
        if line.startswith("{"):
            row = dict(json.loads(line), command=shown)
            key = (f"llama.cpp {kind.upper()}", weights, (), row["depth"])
            together = row.pop("parallel_decode_tokens_per_s", None)
            runs[System(*key, 1)] = row
            if together is not None:
                runs[System(*key, args.parallel)] = {"decode_tokens_per_s": together,
                                                     "command": shown}
    return runs


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


class Table:
    """The runs of all systems, each system once a round."""

    def __init__(self) -> None:
        self.runs: dict[tuple, list] = {}
        self.systems: dict[tuple, System] = {}

    def add(self, system: System, run: dict) -> None:
        key = (system.name, system.depth, system.batch)
        self.systems[key] = system
        self.runs.setdefault(key, []).append(run)

    def rates(self, key: tuple, what: str) -> list:
        return [run[f"{what}_tokens_per_s"] for run in self.runs[key]]

    def cell(self, key: tuple, what: str) -> str:
        system = self.systems[key]
        if what == "prefill" and system.batch > 1:
            return " | "
        rate = f"{statistics.median(self.rates(key, what)):,.0f}"
        if system.is_peer:
            return f"{rate} | "
        peer = (f"llama.cpp {FORMATS[system.weights].upper()}", system.depth, system.batch)
        ratio = statistics.median(
            a / b for a, b in zip(self.rates(key, what), self.rates(peer, what)))
        return f"{rate} | {ratio:.2f}x"

    def share(self, key: tuple) -> str:
        shares = [run["share_of_floor"] for run in self.runs[key] if "share_of_floor" in run]
        return f"{100 * statistics.median(shares):.0f} %" if shares else ""

    def memory(self, key: tuple) -> str:
        peaks = [run["peak_rss_bytes"] for run in self.runs[key] if "peak_rss_bytes" in run]
        return f"{max(peaks) / 2**20:,.0f} MiB" if peaks else ""

    def show(self) -> None:
        print("| system | depth | sequences | prefill 512, tok/s | of llama.cpp | decode, tok/s | "
              "of llama.cpp | of the floor | peak memory |")
        print("|---|---|---|---|---|---|---|---|---|")
        for key in self.runs:
            name, depth, batch = key
            print(f"| {name} | {depth} | {batch} | {self.cell(key, 'prefill')} | "
                  f"{self.cell(key, 'decode')} | {self.share(key)} | {self.memory(key)} |")

    def as_json(self) -> list:
        return [{"system": name, "depth": depth, "sequences": batch, "runs": runs}
                for (name, depth, batch), runs in self.runs.items()]


def save(table: Table, args: argparse.Namespace) -> None:
    args.output.write_text(json.dumps({
        "date": datetime.date.today().isoformat(),
        "cpu": cpu_name(),
        "shape": args.shape,
        "threads": args.threads,
        "results": table.as_json(),
    }, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=HERE.parent / "build/release/bin/winnow")
    parser.add_argument("--shape", default="smollm2-135m")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--parallel", type=int, default=8, help="sequences that decode together")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=3, help="measurements of one sequence a round")
    parser.add_argument("--generate", type=int, default=32, help="tokens that a sequence decodes")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()

    table = Table()
    for _ in range(args.rounds):
        for weights in args.formats:
            for system, run in run_llama_cpp(weights, args).items():
                table.add(system, run)
            for system in winnow_systems(weights, args.parallel):
                table.add(system, run_winnow(system, args))
        save(table, args)
    table.show()


if __name__ == "__main__":
    main()
