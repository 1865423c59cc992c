"""Time of a decode step over context, batch and ratio, beside the DMS paper's model of it.

    python3 benchmarks/cuda/latency.py --winnow build/cuda/bin/winnow --devices 0 --out latency

Random weights and drawn decisions, in bf16; a ratio of 1 is dense. Each point prefills its prompts, so points with
more than --most-tokens in all are left out. Writes OUT.jsonl (what `winnow bench` printed; if it is there, nothing is measured)
and OUT.json (what `winnow eval latency` made of it); scripts/plot_latency.py draws them.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from report_text import objects  # noqa: E402


@dataclass
class Row:
    shape: str
    ratio: int
    length: int
    batches: list[int]

    def tokens(self) -> int:
        return self.length * sum(self.batches)


def rows(args: argparse.Namespace) -> list[Row]:
    found = [
        Row(shape, ratio, length, [batch for batch in args.batches if batch * length <= args.most_tokens])
        for shape in args.shapes
        for ratio in args.crs
        for length in args.lengths
    ]
    return sorted((row for row in found if row.batches), key=Row.tokens, reverse=True)


def bench(args: argparse.Namespace, row: Row, device: str) -> list[dict]:
    cache = ["--cache", "dense"] if row.ratio == 1 else ["--cache", "dms", "--cr", str(row.ratio), "--window", str(args.window)]
    command = [args.winnow, "bench", "--json", "--shape", row.shape, "--device", f"cuda:{device}", "--context", str(row.length),
               "--generate", str(args.generate), "--repeat", "1", "--batch", ",".join(map(str, row.batches)), *cache]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        print(f"{' '.join(command)}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr, flush=True)
    return objects(done.stdout)


def measure(args: argparse.Namespace) -> list[dict]:
    devices: Queue[str] = Queue()
    for device in args.devices:
        devices.put(device)

    def run(row: Row) -> list[dict]:
        device = devices.get()
        try:
            return bench(args, row, device)
        finally:
            devices.put(device)

    with ThreadPoolExecutor(len(args.devices)) as pool:
        return [result for results in pool.map(run, rows(args)) for result in results]


def beside_the_model(args: argparse.Namespace, shape: str, results: list[dict]) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for index, result in enumerate(results):
            files.append(Path(folder) / f"{index}.json")
            files[-1].write_text(json.dumps(result))
        command = [args.winnow, "eval", "latency", "--json", "--shape", shape, "--tflops", str(args.tflops), "--gbps", str(args.gbps),
                   "--batches", ",".join(map(str, args.batches)), "--lengths", ",".join(map(str, args.lengths)),
                   "--crs", ",".join(map(str, args.crs)), "--beside", *map(str, files)]  # fmt: skip
        made = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    for step in made["measured"]:
        result = results[int(Path(step.pop("file")).stem)]
        step["cr"] = result["cr"] or 1
    return made


def main() -> None:
    def numbers(text: str) -> list[int]:
        return [int(word) for word in text.split(",")]

    def words(text: str) -> list[str]:
        return text.split(",")

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--winnow", default="build/cuda/bin/winnow")
    parser.add_argument("--devices", type=words, default=["0"], help="CUDA devices; each takes a point at a time")
    parser.add_argument("--shapes", type=words, default=["llama-3.2-1b", "qwen3-8b"])
    parser.add_argument("--crs", type=numbers, default=[1, 4, 8])
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--lengths", type=numbers, default=[1024, 4096, 16384, 65536, 131072])
    parser.add_argument("--batches", type=numbers, default=[1, 16, 64, 256])
    parser.add_argument("--most-tokens", type=int, default=270_000)
    parser.add_argument("--generate", type=int, default=64)
    parser.add_argument("--tflops", type=float, default=989.5)
    parser.add_argument("--gbps", type=float, default=3350)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()

    file = Path(f"{args.out}.jsonl")
    if not file.exists():
        file.write_text("".join(json.dumps(result) + "\n" for result in measure(args)))
    results = objects(file.read_text())
    made = {
        shape: beside_the_model(args, shape, own)
        for shape in args.shapes
        if (own := [result for result in results if result["model"] == shape])
    }
    Path(f"{args.out}.json").write_text(json.dumps(made) + "\n")


if __name__ == "__main__":
    main()
