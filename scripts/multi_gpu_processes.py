"""The part `processes` of scripts/multi-gpu-check.sh: ranks that are processes, as torchrun starts them, beside threads.

Devices of one machine read each other's memory, also from several processes; --rank-exchange nccl makes them use
NCCL, and with NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 that uses sockets, as between hosts."""
import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import time

from multi_gpu_faults import Trial, write_model
from report_text import number, objects, table

TOLERANCE = {"cpu": 1e-3, "cuda": 0.15}  # of logits: bf16 sums in another order
SOCKETS = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}
NCCL = ["--rank-exchange", "nccl"]


# Starts ranks 1 to N - 1 in the background and rank 0 in front; fails if one of them fails.
SCRIPT = """
for ((rank = 1; rank < WORLD_SIZE; ++rank)); do
  RANK=$rank LOCAL_RANK=$rank "$@" > /dev/null &
  others+=($!)
done
RANK=0 LOCAL_RANK=0 "$@"
code=$?
for other in "${others[@]}"; do wait "$other" || code=$?; done
exit $code
"""


def group(ranks: int) -> dict[str, str]:
    """What a launcher tells the ranks of one group."""
    port = random.randrange(20_000, 32_000)  # not of those that the system gives to connections
    return {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def launched(command: list[str]) -> list[str]:
    return ["bash", "-c", SCRIPT, "launch", *command]


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
        """A command of all ranks."""
        return [self.winnow, *command, "--device", self.device, "--tensor-parallel", str(self.ranks), *self.threads]

    def compare(self, name: str, flags: list[str], env: dict) -> list:
        """Logits of all positions, as threads and as processes."""
        files = [self.work / f"{how}.safetensors" for how in ("threads", "processes")]
        text = " ".join(f"Number {i} is followed by {i + 1}." for i in range(60))
        (self.work / "tokens.txt").write_text(",".join(str(byte) for byte in text.encode()))
        for file, how in zip(files, (list, launched)):
            through = flags if how is launched else [flag for flag in flags if flag not in NCCL]
            command = self.split("logits", "--model", str(self.base), "--tokens-file",
                                 str(self.work / "tokens.txt"), "--output", str(file), *through)
            row = self.check.run("processes", f"logits, {name}, {file.stem}", how(command),
                                 env | group(self.ranks) if how is launched else env)
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

    def train(self, stage: int) -> list:
        out, name = f"processes-{stage}", f"train, stage {stage}"
        command = self.training(out, self.ranks, "--zero-stage", str(stage))
        row = self.check.run("processes", f"{name}, processes", launched(command), group(self.ranks))
        if "error" in row:
            return [name, self.check.note("processes", name, **row)["error"], ""]
        (step, loss), (_, whole) = self.last_loss(out), self.last_loss("whole")
        wrong = {} if abs(loss - whole) <= 0.05 * whole else {"error": f"loss {loss}, of threads {whole}"}
        self.check.note("processes", name, step=step, loss=loss, threads=whole, **wrong)
        return [f"training, stage {stage}", f"step {step}, loss {loss:.4f}", f"threads, stage 1: {whole:.4f}"]

    def lose_one(self, name: str, kind: signal.Signals) -> list:
        """Kills or stops the last rank in the middle of an answer; how long until rank 0 has ended, and what it says."""
        command = self.split("generate", "--model", str(self.base), "--prompt", "Number 7 is", "--max-tokens", "4000",
                             "--ignore-eos")
        log, about = self.check.out / f"logs/processes-{name}.log", group(self.ranks)
        with open(log, "w") as file:
            ranks = [subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=os.environ | about | {
                "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(self.ranks)]
        deadline = time.monotonic() + 60
        while log.stat().st_size < 200 and time.monotonic() < deadline:  # until it writes its answer
            time.sleep(0.1)
        begin = time.monotonic()
        ranks[-1].send_signal(kind)
        try:
            ranks[0].wait(60)
        except subprocess.TimeoutExpired:
            pass
        took, code = time.monotonic() - begin, ranks[0].poll()
        for process in ranks:
            process.kill()
            process.wait()
        said = [line for line in log.read_text(errors="replace").splitlines() if "error" in line]
        wrong = {} if code and took <= 30 else {"error": f"rank 0 ended with {code} after {took:.0f} s"}
        self.check.note("processes", f"rank {name}", seconds=round(took, 2), exit=code, said=said, **wrong)
        return [f"the last rank {name} in the middle of an answer", f"rank 0 ends after {took:.1f} s",
                said[-1].strip() if said else "nothing"]

    def speed(self) -> list[list]:
        check, rows = self.check, []
        shape = "smollm2-135m" if check.args.dry_run else "llama-3.1-8b"
        command = self.split("bench", "--json", "--shape", shape, "--context", str(check.args.context), "--generate",
                             str(check.args.generate), "--repeat", str(check.args.repeat), "--batch", check.args.batch)
        for name, how, env in (("threads", command, {}), ("processes", launched(command), group(self.ranks)),
                               ("processes, NCCL", launched([*command, *NCCL]), group(self.ranks)),
                               ("processes, NCCL over sockets", launched([*command, *NCCL]),
                                SOCKETS | group(self.ranks))):
            if check.args.dry_run and "NCCL" in name:
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
    for name, flags in (("dense", ["--cache", "dense"]), ("streaming", ["--cache", "streaming", "--cr", "4"]),
                        ("TOVA", ["--cache", "tova", "--cr", "4"])):
        rows.append(trial.compare(name, flags, {}))
    if not check.args.dry_run:
        rows.append(trial.compare("dense, NCCL", ["--cache", "dense", *NCCL], {}))
        rows.append(trial.compare("dense, NCCL over sockets", ["--cache", "dense", *NCCL], SOCKETS))
    rows += [trial.train(1), trial.train(3), trial.lose_one("killed", signal.SIGKILL), trial.lose_one("stopped", signal.SIGSTOP)]
    rows += trial.speed()
    shutil.rmtree(trial.work)
    return table(["what processes did", "result", "beside threads"], rows)
