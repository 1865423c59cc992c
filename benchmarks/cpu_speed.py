"""CPU speed of winnow against llama.cpp, on one machine in one run.

    pip install llama-cpp-python gguf numpy
    python benchmarks/cpu_speed.py --output docs/results/cpu-speed.json

Runs every configuration in turn, winnow and llama.cpp alternating, for --rounds rounds. Reports the
median over the rounds of each rate, and of each round's ratio to llama.cpp in that round: these
figures are about the ratio, the machine may be noisy.
"""

import argparse
import datetime
import json
import platform
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SHAPE = "smollm2-135m"
DMS = ["--cache", "dms", "--cr", "8", "--window", "256", "--kv-dtype", "fp8"]
# name -> (flags of `winnow bench`, depth)
WINNOW = {
    "winnow bf16, dense cache": ([], 0),
    "winnow bf16, DMS CR 8, fp8": (DMS, 8192),
    "winnow bf16, dense cache, deterministic": (["--deterministic"], 0),
    "winnow int8, dense cache": (["--weights", "int8"], 0),
    "winnow int8, DMS CR 8, fp8": (["--weights", "int8", *DMS], 8192),
    "winnow int4, dense cache": (["--weights", "int4"], 0),
    "winnow int4, DMS CR 8, fp8": (["--weights", "int4", *DMS], 8192),
}
LLAMA_CPP = {
    "llama.cpp BF16": ("bf16", [0, 8192]),
    "llama.cpp Q8_0": ("q8_0", [0, 8192]),
    "llama.cpp Q4_0": ("q4_0", [0, 8192]),
}
# What winnow's weights of a format are held against.
PEERS = {"bf16": "llama.cpp BF16", "int8": "llama.cpp Q8_0", "int4": "llama.cpp Q4_0"}


def run_winnow(binary: Path, flags: list, depth: int, threads: int) -> list:
    command = [str(binary), "bench", "--shape", SHAPE, "--depth", str(depth), "--prefill", "512",
               "--generate", "32", "--repeat", "3", "--threads", str(threads), "--json", *flags]
    result = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return [dict(result, command=" ".join(["winnow", *command[1:]]), depth=depth)]


def run_llama_cpp(kind: str, depths: list, threads: int) -> list:
    command = [sys.executable, str(HERE / "llama_cpp_peer.py"), "--type", kind, "--threads",
               str(threads), "--depth", *map(str, depths)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return [dict(row, command="python benchmarks/" + " ".join([Path(command[1]).name, *command[2:]]))
            for row in rows]


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=HERE.parent / "build/release/bin/winnow")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()

    rows = {}
    for _ in range(args.rounds):
        for name, (kind, depths) in LLAMA_CPP.items():
            for row in run_llama_cpp(kind, depths, args.threads):
                rows.setdefault((name, row["depth"]), []).append(row)
        for name, (flags, depth) in WINNOW.items():
            for row in run_winnow(args.binary, flags, depth, args.threads):
                rows.setdefault((name, depth), []).append(row)

    def rates(key: tuple, what: str) -> list:
        return [row[f"{what}_tokens_per_s"] for row in rows[key]]

    def cell(key: tuple, what: str) -> str:
        rate = f"{statistics.median(rates(key, what)):.0f}"
        if key[0] in LLAMA_CPP:
            return f"{rate} | "
        weights = key[0].removeprefix("winnow ").split(",")[0]
        peer = (PEERS[weights], key[1])
        ratio = statistics.median(a / b for a, b in zip(rates(key, what), rates(peer, what)))
        return f"{rate} | {ratio:.2f}"

    def share(key: tuple) -> str:
        shares = [row["share_of_floor"] for row in rows[key] if "share_of_floor" in row]
        return f"{100 * statistics.median(shares):.0f} %" if shares else ""

    def memory(key: tuple) -> str:
        peaks = [row["peak_rss_bytes"] for row in rows[key] if "peak_rss_bytes" in row]
        return f"{max(peaks) / 2**20:.0f} MiB" if peaks else ""

    print("| system | depth | prefill 512, tok/s | of llama.cpp | decode, tok/s | of llama.cpp | "
          "of the read floor | peak memory |")
    print("|---|---|---|---|---|---|---|---|")
    for key in rows:
        print(f"| {key[0]} | {key[1]} | {cell(key, 'prefill')} | {cell(key, 'decode')} | "
              f"{share(key)} | {memory(key)} |")
    own = [compressed / empty for compressed, empty in zip(
        rates(("winnow bf16, DMS CR 8, fp8", 8192), "decode"),
        rates(("winnow bf16, dense cache", 0), "decode"))]
    print(f"\nDecode at depth 8192 with DMS over own decode at depth 0: {statistics.median(own):.2f}")
    args.output.write_text(json.dumps({
        "date": datetime.date.today().isoformat(),
        "cpu": cpu_name(),
        "threads": args.threads,
        "results": [{"system": name, "depth": depth, "runs": runs}
                    for (name, depth), runs in rows.items()],
    }, indent=1) + "\n")


if __name__ == "__main__":
    main()
