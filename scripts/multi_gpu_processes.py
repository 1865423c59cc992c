"""The part `processes` of scripts/multi-gpu-check.sh: ranks that mpirun starts, beside ranks that are threads.

On devices the processes exchange results through NCCL. NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 makes it use
sockets, as between hosts."""
import json
import pathlib
import shutil
import signal
import struct
import subprocess
import time

from multi_gpu_faults import Trial, write_model
from report_text import number, objects, table

TOLERANCE = {"cpu": 1e-3, "cuda": 0.15}  # of logits: bf16 sums in another order
SOCKETS = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}


def launched(ranks: int, command: list[str]) -> list[str]:
    launcher = ["mpirun", "--oversubscribe", "--bind-to", "none"]
    for name in SOCKETS:
        launcher += ["-x", name]
    return [*launcher, "-n", str(ranks), *command]


def tensors(file: pathlib.Path) -> dict[str, tuple]:
    """The fp32 and int32 tensors of a safetensors file."""
    data = file.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + size])
    return {name: struct.unpack_from(f"<{(end - begin) // 4}{'f' if about['dtype'] == 'F32' else 'i'}", data, 8 + size + begin)
            for name, about in header.items() if name != "__metadata__"
            for begin, end in [about["data_offsets"]]}


class Processes(Trial):
    def __init__(self, check):
        super().__init__(check)
        self.ranks = check.machine.devices
        self.base = self.work / "whole"

    def split(self, *command: str) -> list[str]:
        return [self.winnow, *command, "--device", self.device, "--tensor-parallel", str(self.ranks), *self.threads]

    def compare(self, name: str, flags: list[str], env: dict) -> list:
        """Logits of all positions, as threads and as processes."""
        files = [self.work / f"{how}.safetensors" for how in ("threads", "processes")]
        text = " ".join(f"Number {i} is followed by {i + 1}." for i in range(60))
        (self.work / "tokens.txt").write_text(",".join(str(byte) for byte in text.encode()))
        for file, how in zip(files, (lambda c: c, lambda c: launched(self.ranks, c))):
            command = self.split("logits", "--model", str(self.base), "--tokens-file",
                                 str(self.work / "tokens.txt"), "--output", str(file), *flags)
            row = self.check.run("processes", f"logits, {name}, {file.stem}", how(command), env)
            if "error" in row:
                return [name, self.check.note("processes", name, **row)["error"], ""]
        one, other = (tensors(file) for file in files)
        worst = max(abs(a - b) for a, b in zip(one["logits"], other["logits"], strict=True))
        same = one["live_entries"] == other["live_entries"]
        wrong = {} if same and worst <= TOLERANCE[self.device] else {"error": "logits or live entries differ"}
        self.check.note("processes", f"logits, {name}", numbers=len(one["logits"]), largest_difference=worst,
                        same_live_entries=same, **wrong)
        return [f"logits, {name}", f"{len(one['logits'])} numbers, the same live entries: {same}",
                f"differ by {worst:.2g} at most"]

    def train(self, env: dict) -> list:
        row = self.check.run("processes", "train, processes",
                             launched(self.ranks, self.training("processes", self.ranks)), env)
        if "error" in row:
            return ["training", self.check.note("processes", "train", **row)["error"], ""]
        (step, loss), (_, whole) = self.last_loss("processes"), self.last_loss("whole")
        wrong = {} if abs(loss - whole) <= 0.01 * whole else {"error": f"loss {loss}, of threads {whole}"}
        self.check.note("processes", "train", step=step, loss=loss, threads=whole, **wrong)
        return ["training, stage 1", f"step {step}, loss {loss:.4f}", f"threads: {whole:.4f}"]

    def kill_one(self) -> list:
        """Kills one rank in the middle of a run; how long until all have ended, and what they say."""
        log = self.check.out / "logs/processes-killed.log"
        process = self.start(launched(self.ranks, self.split(
            "generate", "--model", str(self.base), "--prompt", "Number 7 is", "--max-tokens", "4000",
            "--ignore-eos")), log.name)
        time.sleep(20 if self.device == "cuda" else 5)
        found = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
        if process.poll() is not None or len(found) < self.ranks:
            process.kill()
            return ["a rank killed", self.check.note("processes", "kill", error="the run ended too soon")["error"], ""]
        begin = time.monotonic()
        subprocess.run(["kill", f"-{signal.SIGKILL.value}", found[-1]], check=True)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
        took = time.monotonic() - begin
        self.check.note("processes", "kill", seconds=round(took, 2), exit=process.returncode,
                        **({"error": "the others did not end within 30 s"} if took > 30 else {}))
        return ["a rank killed in the middle of generating", f"all ended after {took:.1f} s",
                f"exit status {process.returncode}"]

    def speed(self) -> list[list]:
        check, rows = self.check, []
        shape = "smollm2-135m" if check.args.dry_run else "llama-3.1-8b"
        command = self.split("bench", "--json", "--shape", shape, "--context", str(check.args.context), "--generate",
                             str(check.args.generate), "--repeat", str(check.args.repeat), "--batch", check.args.batch)
        for name, how, env in (("threads", command, {}), ("processes", launched(self.ranks, command), {}),
                               ("processes over sockets", launched(self.ranks, command), SOCKETS)):
            if check.args.dry_run and env:
                continue
            row = check.run("processes", f"speed, {name}", how, env)
            row["results"] = objects(row.pop("stdout"))
            check.note("processes", f"speed, {name}", **row)
            rows += [[f"{shape}, {name}", f"c = {result['batch']}",
                      f"decode {number(result['decode_tokens_per_s'])}, prefill "
                      f"{number(result['prefill_tokens_per_s'])} tok/s"] for result in row["results"]]
        return rows


def run(check) -> str:
    trial = Processes(check)
    shutil.rmtree(trial.work, ignore_errors=True)
    write_model(trial.model)
    trial.train_to_the_end("whole", trial.ranks)
    rows = []
    for name, flags in (("dense", ["--cache", "dense"]), ("streaming", ["--cache", "streaming", "--cr", "4"])):
        rows.append(trial.compare(name, flags, {}))
    if not check.args.dry_run:
        rows.append(trial.compare("dense, over sockets", ["--cache", "dense"], SOCKETS))
    rows += [trial.train({}), trial.kill_one()]
    rows += trial.speed()
    shutil.rmtree(trial.work)
    return table(["what processes did", "result", "beside threads"], rows)
