#!/usr/bin/env python3
"""The parts of scripts/multi-gpu-check.sh, which see."""
import argparse
import dataclasses
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

import multi_gpu_faults
import multi_gpu_processes
from report_text import number, objects, table

ROOT = pathlib.Path(__file__).resolve().parents[1]
GIB = 2**30
# Parameters of a shape, in units of 10^9.
PARAMETERS = {"llama-3.2-1b": 1.24, "llama-3.1-8b": 8.03, "qwen3-32b": 32.8, "llama-3.1-70b": 70.6,
              "llama-2-70b": 69.0}
BYTES = {"bf16": 2.0, "fp8": 1.0, "int8": 1.06}
DENSE = ["--cache", "dense", "--kv-dtype", "bf16"]
DMS = ["--cache", "dms", "--cr", "6.4", "--kv-dtype", "fp8"]


@dataclasses.dataclass
class Machine:
    devices: int
    name: str
    gib: float  # of one device


def read_machine(args: argparse.Namespace) -> Machine:
    if args.dry_run:
        return Machine(args.devices or 2, "CPU ranks, tiny shapes: a dry run", 80.0)
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits"]
    lines = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip().splitlines()
    name, mib, driver = (word.strip() for word in lines[0].split(","))
    count = args.devices or len(lines)
    if count > len(lines) or count < 2:
        sys.exit(f"multi-gpu-check: {count} devices: expected 2 to {len(lines)}")
    return Machine(count, f"{count} x {name}, driver {driver}", int(mib) / 1024)


class Check:
    """Runs commands, says how far it is, and keeps all that came out."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.machine = read_machine(args)
        self.out = pathlib.Path(args.out)
        (self.out / "logs").mkdir(parents=True, exist_ok=True)
        self.start = time.monotonic()
        self.rows: list[dict] = []
        self.failed: list[str] = []
        self.commit = commit_of(self.binary("winnow"))

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.start:6.0f} s] {text}", flush=True)

    def binary(self, name: str) -> str | None:
        base = pathlib.Path(self.args.binaries).resolve()
        for folder in (base, base / "bin", base / "tests", base / "benchmarks", base / "benchmarks/cuda"):
            if (folder / name).is_file():
                return str(folder / name)
        return None

    def wants(self, row: str) -> bool:
        return re.search(self.args.rows, row) is not None

    def note(self, part: str, name: str, **more) -> dict:
        row = {"part": part, "row": name, **more}
        self.rows.append(row)
        if "error" in row:
            self.failed.append(f"{part}: {name}: {row['error']}")
            self.say(f"{part}: {name}: {row['error']}")
        self.write()
        return row

    def write(self) -> None:
        raw = {"machine": self.machine.name, "devices": self.machine.devices, "commit": self.commit,
               "date": time.strftime("%Y-%m-%d", time.gmtime()), "rows": self.rows}
        (self.out / "results.json").write_text(json.dumps(raw, indent=1) + "\n")

    def run(self, part: str, name: str, command: list[str], env: dict | None = None) -> dict:
        """A row with what the command printed, and the JSON in it; or with an error."""
        self.say(f"{part}: {name}")
        begin = time.monotonic()
        log = self.out / "logs" / (re.sub(r"[^\w.-]+", "-", f"{part}-{name}-{len(self.rows)}") + ".log")
        winnow = self.binary("winnow") or "winnow"
        shown = " ".join(pathlib.Path(word).name if i == 0 or word == winnow else word
                         for i, word in enumerate(command))
        try:
            done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=self.args.limit,
                                  env=os.environ | (env or {}))
            stdout, stderr, code = done.stdout, done.stderr, done.returncode
        except subprocess.TimeoutExpired as late:
            stdout, stderr = (text.decode() if isinstance(text, bytes) else text or ""
                              for text in (late.stdout, late.stderr))
            code = None
        log.write_text(f"$ {shown}\n{stdout}\n{stderr}\nrc={code}\n")
        row = {"command": shown, "seconds": round(time.monotonic() - begin, 1)}
        if code == 0:
            return row | {"stdout": stdout}
        return row | {"stdout": stdout, "error": problem(code, stdout, stderr, self.args.limit)}


def commit_of(winnow: str | None) -> str:
    """What the program was built from, which need not be the checkout of this script."""
    said = subprocess.run([winnow, "--version"], capture_output=True, text=True).stdout if winnow else ""
    found = re.search(r"\((\w+)\)", said)
    return found.group(1) if found else "unknown"


def problem(code: int | None, stdout: str, stderr: str, limit: int) -> str:
    if code is None:
        return f"took more than {limit} s"
    lines = [line for line in (stderr.strip() or stdout.strip()).splitlines() if line.strip()]
    last = lines[-1] if lines else f"exit status {code}"
    if re.search(r"device memory wanted|the cache wants|cache is full|out of memory", last):
        return f"does not fit: {last}"
    return "killed: is there too little host memory?" if code == -9 else f"failed ({code}): {last}"


# --- tests ---------------------------------------------------------------------------------------

def run_tests(check: Check) -> str:
    """Each program's tests on ranks, in shards side by side; a pair of devices for every two ranks."""
    rows = []
    for name, tests, shards in (("train_test", "*CudaTrainingRanks*:*CudaShardedTraining*", 4), ("parallel_test", "*Cuda*", 1),
                                ("api_test", "*CudaRankTeam*", check.args.shards)):
        if not check.wants(name):
            continue
        binary = check.binary(name)
        if binary is None:
            check.note("tests", name, error="is not built")
            continue
        check.say(f"tests: {name} {tests}")
        begin = time.monotonic()
        pairs = check.machine.devices // 2 if name == "api_test" else 1
        running = []
        for shard in range(shards * pairs):
            env = {"GTEST_TOTAL_SHARDS": str(shards * pairs), "GTEST_SHARD_INDEX": str(shard)}
            if pairs > 1:
                first = 2 * (shard % pairs)
                env["CUDA_VISIBLE_DEVICES"] = f"{first},{first + 1}"
            log = open(check.out / "logs" / f"tests-{name}-{shard}.log", "w+")
            running.append((log, subprocess.Popen([binary, f"--gtest_filter={tests}"], cwd=ROOT, stdout=log,
                                                  stderr=subprocess.STDOUT, env=os.environ | env)))
        text, codes = "", []
        for log, process in running:
            try:
                codes.append(process.wait(max(1.0, check.args.limit - (time.monotonic() - begin))))
            except subprocess.TimeoutExpired:
                process.kill()
                codes.append("too slow")
            log.seek(0)
            text += log.read()
        ended = {word: len(re.findall(rf"^\[ +{word} +\] \S+.*ms\)", text, re.M))
                 for word in ("OK", "FAILED", "SKIPPED")}
        bad = sorted(set(re.findall(r"^\[  FAILED  \] (\S+?),? ", text, re.M)))
        more = {"error": f"{len(bad)} failed, exit {codes}: {' '.join(bad[:20])}"} if any(codes) else {}
        check.note("tests", name, seconds=round(time.monotonic() - begin), **ended, **more)
        rows.append([f"`{name}` `{tests}`", ended["OK"], ended["FAILED"], ended["SKIPPED"]])
    return table(["tests", "passed", "failed", "skipped"], rows)


# --- speed and the largest batch -----------------------------------------------------------------

def bench_command(check: Check, devices: int, shape: str, weights: str, flags: list[str]) -> list[str]:
    command = [check.binary("winnow") or "winnow", "bench", "--json"]
    if check.args.dry_run:
        command += ["--device", "cpu", "--threads", "1", "--shape", "smollm2-135m"]
    else:
        command += ["--device", "cuda", "--shape", shape]
        command += {"bf16": [], "fp8": ["--weights", "fp8", "--dtype", "fp8"]}.get(weights, ["--weights", weights])
    return command + flags + (["--tensor-parallel", str(devices)] if devices > 1 else [])


def weight_gib(shape: str, weights: str, devices: int) -> float:
    return PARAMETERS[shape] * 1e9 * BYTES[weights] / devices / GIB


def run_speed(check: Check) -> str:
    args, all_devices = check.args, check.machine.devices
    cells = []
    for shape, weights in (("llama-3.1-8b", "bf16"), ("qwen3-32b", "bf16"), ("qwen3-32b", "fp8"),
                           ("llama-3.1-70b", "bf16"), ("llama-3.1-70b", "fp8"), ("llama-3.1-70b", "int8")):
        for cache, flags in (("dense", DENSE), ("DMS 6.4x, fp8 entries", DMS)):
            name = f"{shape} {weights} {cache}"
            if not check.wants(name):
                continue
            counts = [n for n in (1, all_devices) if weight_gib(shape, weights, n) < 0.75 * check.machine.gib]
            if all_devices not in counts:
                check.note("speed", name, error=f"does not fit: {weight_gib(shape, weights, all_devices):.0f} GiB of "
                                                f"weights a device, which has {check.machine.gib:.0f}")
                continue
            found: dict[tuple[int, int], list[dict]] = {}
            for devices in in_turn(counts, args.rounds):
                row = measure(check, "speed", f"{name}, {devices} devices", bench_command(
                    check, devices, shape, weights,
                    ["--context", str(args.context), "--generate", str(args.generate), "--repeat", str(args.repeat),
                     "--batch", args.batch, *flags,
                     *(["--window", str(args.context // 32)] if flags is DMS else [])]))
                for result in row.get("results", []):
                    found.setdefault((result["batch"], devices), []).append(result)
            cells += speed_rows(name, found, all_devices)
    return table(["", "c", "decode tok/s: one, all", "ratio", "prefill tok/s: one, all", "ratio",
                  "KV GiB a device", "share of the floor"], cells)


def in_turn(counts: list[int], rounds: int) -> list[int]:
    """One, all, all, one: what drifts meets both."""
    return [count for i in range(rounds) for count in (counts if i % 2 == 0 else counts[::-1])]


def measure(check: Check, part: str, name: str, command: list[str]) -> dict:
    row = check.run(part, name, command)
    text = row.pop("stdout")
    row["results"] = objects(text)  # including the batches before one that does not fit
    for result in row["results"]:
        check.say(f"    c={result['batch']}: decode {result['decode_tokens_per_s']:.0f} prefill "
                  f"{result['prefill_tokens_per_s']:.0f} tok/s, KV {result['kv']['bytes'] / GIB:.2f} GiB")
    return check.note(part, name, **row)


def speed_rows(name: str, found: dict, devices: int) -> list[list]:
    rows = []
    for batch in sorted({key[0] for key in found}):
        def typical(count, what):
            values = [result[what] for result in found.get((batch, count), [])]
            return statistics.median(values) if values else None
        cells = [name, batch]
        for what in ("decode_tokens_per_s", "prefill_tokens_per_s"):
            one, many = typical(1, what), typical(devices, what)
            cells += [f"{number(one)}, {number(many)}" if one else number(many),
                      number(many / one, 2) if one and many else ""]
        last = found.get((batch, devices), [{}])[-1]
        if last:
            cells += [number(last["kv"]["bytes"] / devices / GIB, 2), f"{100 * last['share_of_floor']:.0f} %"]
        rows.append(cells)
    return rows


def run_batch(check: Check) -> str:
    """The DMC paper's row: as many sequences as fit, 3,072 prompt and 1,024 generated tokens."""
    args, machine, shape = check.args, check.machine, "llama-2-70b"
    weights = next((w for w in ("bf16", "fp8") if weight_gib(shape, w, machine.devices) < 0.6 * machine.gib), None)
    if weights is None:
        check.note("batch", shape, error=f"does not fit: {weight_gib(shape, 'fp8', machine.devices):.0f} GiB of fp8 "
                                         f"weights a device, which has {machine.gib:.0f}")
        return ""
    room = 0.9 * (machine.gib - 3.0 - weight_gib(shape, weights, machine.devices))  # as the engine plans
    kv_gib = 0.05 if args.dry_run else round(0.97 * room * machine.devices, 1)
    cells, dense = [], None
    for name, flags in (("dense", ["--cache", "dense"]),
                        *((f"DMS, CR {cr}", ["--cache", "dms", "--window", "16", "--cr", str(cr)])
                          for cr in (2, 4, 8))):
        if not check.wants(name):
            continue
        for _ in range(2):
            row = measure(check, "batch", f"{shape} {weights} {name}, {kv_gib} GiB", bench_command(
                check, machine.devices, shape, weights,
                ["--context", str(args.batch_context), "--generate", str(args.batch_generate), "--repeat", "1",
                 "--computed", "8", "--fit", "--kv-gib", str(kv_gib), "--kv-dtype", "bf16", *flags]))
            most = re.search(r"and ([\d.]+) of them can be cache", row.get("error", ""))
            if not most:
                break
            kv_gib = round(0.98 * float(most[1]) * machine.devices, 1)
        for result in row.get("results", []):
            dense = result["decode_tokens_per_s"] if name == "dense" else dense
            ratio = result["decode_tokens_per_s"] / dense if dense else None
            cells.append([f"{name}, {weights} weights", result["batch"], number(result["decode_tokens_per_s"]),
                          number(ratio, 2), number(result["prefill_tokens_per_s"]),
                          number(result["kv"]["bytes"] / result["batch"] / 2**20)])
    return table(["cache", "sequences", "decode tok/s", "over dense", "prefill tok/s", "KV MiB a sequence"], cells)


# --- training ------------------------------------------------------------------------------------

# name, shape, decisions, parts a device, sequences of a part, updates, ZeRO stage
RECIPES = (("1B full, 4,096", "llama-3.2-1b", "borrowed", 1, 4, 5, 1),
           ("8B adapter, 4,096", "llama-3.1-8b", "adapter", 2, 2, 4, 1),
           ("8B full with its teacher, 4,096", "llama-3.1-8b", "borrowed", 4, 1, 3, 3),
           ("70B adapter, 4,096", "llama-3.1-70b", "adapter", 2, 1, 3, 3))


def bytes_a_parameter(decisions: str, stage: int, devices: int) -> float:
    """Of weights, gradients and moments on each device, the teacher's included."""
    if stage == 3:
        return (2 if decisions == "adapter" else 18) / devices
    return 2 if decisions == "adapter" else 8 + 12 / devices


def run_training(check: Check) -> str:
    """The same global batch on one device and on all, in turn: tokens per second, MFU, bytes."""
    cells = []
    for name, shape, decisions, parts, sequences, updates, stage in RECIPES:
        if not check.wants(name):
            continue
        binary = check.binary("training_benchmark")
        if binary is None:
            check.note("training", name, error="training_benchmark is not built (-DWINNOW_BUILD_BENCHMARKS=ON)"
                       if not check.args.dry_run else "not in a dry run: it needs CUDA")
            continue
        found: dict[int, list[dict]] = {}
        batch = parts * sequences * check.machine.devices
        for devices in in_turn([1, check.machine.devices], check.args.rounds):
            each = PARAMETERS[shape] * bytes_a_parameter(decisions, stage, devices) * 1e9 / GIB
            if each > 0.95 * check.machine.gib:
                check.note("training", f"{name}, {devices} devices",
                           error=f"does not fit: {each:.0f} GiB of weights, gradients and moments a device, which "
                                 f"has {check.machine.gib:.0f}")
                continue
            row = check.run("training", f"{name}, {devices} devices", [
                binary, "--shape", shape, "--decisions", decisions, "--length", "4096", "--sequences", str(batch),
                "--micro-batch", str(sequences), "--updates", str(updates), "--ranks", str(devices),
                "--zero-stage", str(stage), *(["--activations", "recompute"] if stage == 3 else [])])
            text = row.pop("stdout")
            if "error" not in row:
                row["results"] = objects(text)
                found.setdefault(devices, []).append(row["results"][-1])
                check.say(f"    {row['results'][-1]['tokens_per_second']:.0f} tok/s")
            check.note("training", f"{name}, {devices} devices", **row)
        cells += training_rows(name, batch, found, check.machine.devices)
    return table(["", "tokens an update", "one: tok/s", "all: tok/s", "ratio", "TFLOP/s a device",
                  "GB a device"], cells)


def training_rows(name: str, batch: int, found: dict, devices: int) -> list[list]:
    def typical(count, what):
        values = [result[what] for result in found.get(count, [])]
        return statistics.median(values) if values else None
    one, many = typical(1, "tokens_per_second"), typical(devices, "tokens_per_second")
    if many is None:
        return [[name, f"{batch * 4096:,}", number(one), "does not fit or failed", "", "", ""]]
    return [[name, f"{batch * 4096:,}", number(one), number(many), number(many / one, 2) if one else "",
             number(typical(devices, "tflops") / devices), number(typical(devices, "bytes") / 1e9, 1)]]


PARTS = {"tests": ("Tests on ranks", run_tests), "speed": ("Tensor parallel inference", run_speed),
         "batch": ("The largest batch", run_batch), "training": ("Training over ranks", run_training),
         "faults": ("A run that is killed", multi_gpu_faults.run),
         "processes": ("Ranks that are processes", multi_gpu_processes.run)}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Runs what several devices of one host can do; writes one report.")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--rows", default="", help="a regular expression: only rows whose name it is found in")
    parser.add_argument("--devices", type=int, default=0, help="how many to use (default: all)")
    parser.add_argument("--out", default="build/multi-gpu-report")
    parser.add_argument("--binaries", default="build/release", help="the build folder; nothing is built")
    parser.add_argument("--context", type=int, default=8192, help="speed: tokens of a prompt")
    parser.add_argument("--generate", type=int, default=128, help="speed: tokens to generate")
    parser.add_argument("--batch", default="1,8,32", help="speed: sequences at a time")
    parser.add_argument("--repeat", type=int, default=3, help="speed: repetitions in a process")
    parser.add_argument("--rounds", type=int, default=2, help="speed, training: processes of each kind, in turn")
    parser.add_argument("--batch-context", type=int, default=3072)
    parser.add_argument("--batch-generate", type=int, default=1024)
    parser.add_argument("--shards", type=int, default=2, help="tests: processes of api_test for each two devices")
    parser.add_argument("--limit", type=int, default=900, help="seconds that a command may take")
    parser.add_argument("--dry-run", action="store_true", help="all commands on CPU ranks with a tiny shape")
    args = parser.parse_args()
    unknown = set(args.only.split(",")) - set(PARTS)
    if unknown:
        parser.error(f"--only {','.join(unknown)}: expected of {', '.join(PARTS)}")
    return args


def main() -> int:
    check = Check(parse())
    check.say(check.machine.name)
    text = f"# {check.machine.name}\n\nCommit {check.commit}, {time.strftime('%Y-%m-%d', time.gmtime())}.\n"
    for part in check.args.only.split(","):
        title, run = PARTS[part]
        begin = time.monotonic()
        try:
            body = run(check)
        except Exception as error:  # the other parts continue
            check.note(part, "the part itself", error=f"{type(error).__name__}: {error}")
            body = ""
        text += f"\n## {title}\n\n{body}\nIt took {time.monotonic() - begin:.0f} s.\n"
        failed = "".join(f"- {line}\n" for line in check.failed)
        (check.out / "report.md").write_text(text + (f"\n## Failed, or did not fit\n\n{failed}" if failed else ""))
    check.write()
    print((check.out / "report.md").read_text())
    return 1 if any("does not fit" not in line for line in check.failed) else 0


if __name__ == "__main__":
    sys.exit(main())
