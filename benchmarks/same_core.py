#!/usr/bin/env python3
"""Compares two builds of winnow where other work makes clocks useless: both run `winnow bench` at the same time on
the same core, so that the kernel gives both the same machine in slices of milliseconds.

  benchmarks/same_core.py BEFORE AFTER --cores 0,1 --out FILE.jsonl -- --shape smollm2-135m --prefill 512 \\
      --generate 48 --repeat 8 --cache dense

Each core has a pair of its own. Prints the ratio of the medians, without the first and the last run, per core."""
import argparse
import json
import statistics
import subprocess


def start(binary, core, flags):
    return subprocess.Popen(["taskset", "-c", core, binary, "bench", "--threads", "1", "--json", *flags],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--cores", default="0,1")
    parser.add_argument("--out", type=argparse.FileType("a"))
    parser.add_argument("flags", nargs="*", help="of winnow bench")
    args = parser.parse_args()
    programs = {"before": args.before, "after": args.after}
    pairs = [{name: start(binary, core, args.flags) for name, binary in programs.items()}
             for core in args.cores.split(",")]
    told = [{name: json.loads(process.communicate()[0]) for name, process in pair.items()} for pair in pairs]
    for what in ("decode_runs", "prefill_runs"):
        ratios = [statistics.median(pair["after"][what][1:-1]) / statistics.median(pair["before"][what][1:-1])
                  for pair in told]
        print(what, *(f"{ratio:.3f}" for ratio in ratios), "mean", f"{statistics.geometric_mean(ratios):.3f}")
    if args.out:
        args.out.write(json.dumps({"flags": args.flags, "pairs": told}) + "\n")


if __name__ == "__main__":
    main()
