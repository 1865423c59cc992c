"""The part `faults` of scripts/multi-gpu-check.sh: a run is killed in the middle, and goes on.

Ranks of devices are threads of one process, so what is killed is all of them. Ranks that are processes (MPI) are
killed one by one by tests/parallel/mpi_processes_test.py."""
import http.client
import json
import pathlib
import shutil
import signal
import subprocess
import time

STEPS = 60
TOKENS = 64  # to generate


def write_model(folder: pathlib.Path) -> None:
    """A small Llama of bytes, without weights: `winnow train --init` draws them."""
    folder.mkdir(parents=True)
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in printable}
    letters |= {byte: chr(256 + i) for i, byte in enumerate(b for b in range(256) if b not in printable)}
    special = [{"id": 256 + i, "content": name, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True} for i, name in enumerate(("<bos>", "<eos>"))]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {letters[byte]: byte for byte in range(256)}, "merges": []}}))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<bos>", "eos_token": "<eos>"}))
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 4,
        "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 512,
        "vocab_size": 264, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": True, "bos_token_id": 256, "eos_token_id": 257, "torch_dtype": "bfloat16"}))
    lines = (json.dumps({"text": f"Number {i} is followed by {i + 1}, and {i + 1} by {i + 2}."}) for i in range(2000))
    (folder / "data.jsonl").write_text("\n".join(lines) + "\n")


class Trial:
    def __init__(self, check):
        self.check = check
        self.work = check.out.resolve() / "faults"
        self.model = self.work / "model"
        self.winnow = check.binary("winnow") or "winnow"
        self.device = "cpu" if check.args.dry_run else "cuda"
        self.threads = ["--threads", "1"] if check.args.dry_run else []

    def training(self, out: str, ranks: int, *more: str) -> list[str]:
        length = "64" if self.device == "cpu" else "256"
        return [self.winnow, "train", "--init", str(self.model), "--data", str(self.model / "data.jsonl"),
                "--out", str(self.work / out), "--length", length, "--batch", "18", "--micro-batch", "2",  # of 9 parts some ranks skip one
                "--steps", str(STEPS), "--save-every", "10", "--lr", "1e-3", "--warmup", "5",
                "--device", self.device, "--data-parallel", str(ranks), *self.threads, *more]

    def start(self, command: list[str], log: str) -> subprocess.Popen:
        with open(self.check.out / "logs" / log, "a") as file:
            return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)

    def last_loss(self, out: str) -> tuple[int, float]:
        lines = [json.loads(line) for line in open(self.work / out / "training/metrics.jsonl")]
        last = [line for line in lines if "loss" in line][-1]
        return last["step"], last["loss"]

    def train_to_the_end(self, out: str, ranks: int, *more: str) -> None:
        row = self.check.run("faults", f"train {out} on {ranks} {' '.join(more)}", self.training(out, ranks, *more))
        if "error" in row:
            raise RuntimeError(row["error"])

    def kill_training(self, out: str, ranks: int) -> int:
        """Kills a run between its checkpoints; the steps it had done."""
        process = self.start(self.training(out, ranks), f"faults-{out}.log")
        state, metrics = self.work / out / "training/state.safetensors", self.work / out / "training/metrics.jsonl"
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and process.poll() is None:
            if state.exists() and sum(1 for _ in open(metrics)) % 10 >= 3:
                break
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if process.returncode != -signal.SIGKILL:
            raise RuntimeError(f"training ended before it was killed: {process.returncode}")
        return self.last_loss(out)[0]

    def serve(self, model: pathlib.Path, ranks: int) -> tuple[subprocess.Popen, int]:
        log = f"faults-serve-{time.monotonic_ns()}.log"
        process = self.start([self.winnow, "serve", "--model", str(model), "--port", "0", "--device", self.device,
                              "--tensor-parallel", str(ranks), "--no-prefix-cache", *self.threads], log)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            text = (self.check.out / "logs" / log).read_text()
            if "http://" in text:
                return process, int(text.split("http://", 1)[1].split(":", 1)[1].split()[0].strip("/,"))
            time.sleep(0.1)
        process.kill()
        raise RuntimeError(f"the server did not start: see {log}")


def ask(port: int, tokens: int, stream: bool) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = {"prompt": "Number 7 is", "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": stream}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    return connection.getresponse()


def answer(port: int) -> str:
    return json.load(ask(port, TOKENS, False))["choices"][0]["text"]


def kill_server(trial: Trial, ranks: int) -> dict:
    """Kills a server in the middle of a stream; what its client saw, and what the next server answers."""
    process, port = trial.serve(trial.work / "whole", ranks)
    before = answer(port)
    response = ask(port, 3000, True)
    response.readline()
    process.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    try:
        text = response.read().decode(errors="replace")
        end = "an end without [DONE]" if "[DONE]" not in text else "a whole answer"
    except (http.client.HTTPException, OSError) as error:
        end = type(error).__name__
    waited = time.monotonic() - killed
    process.wait()
    process, port = trial.serve(trial.work / "whole", ranks)
    after = answer(port)
    process.terminate()
    process.wait(60)
    wrong = "the stream was complete before the kill" if end == "a whole answer" else (
        "another server answers differently" if after != before else None)
    return {"client": end, "waited": round(waited, 3), "same_answer": after == before} | (
        {"error": wrong} if wrong else {})


def run(check) -> str:
    trial = Trial(check)
    shutil.rmtree(trial.work, ignore_errors=True)
    write_model(trial.model)
    ranks = check.machine.devices
    rows = []
    trial.train_to_the_end("whole", ranks)
    step, whole = trial.last_loss("whole")
    for name, again in (("killed", ranks), ("killed, goes on with one", 1)):
        out = name.replace(", ", "-").replace(" ", "-")
        died_at = trial.kill_training(out, ranks)
        trial.train_to_the_end(out, again, "--resume")
        step, loss = trial.last_loss(out)
        wrong = {} if step == STEPS and abs(loss - whole) <= 0.05 * whole else {
            "error": f"ends at step {step} with loss {loss:.4f}, the whole run with {whole:.4f}"}
        check.note("faults", f"training, {name}", died_at=died_at, step=step, loss=loss, whole=whole, **wrong)
        rows.append([f"training on {ranks} ranks, killed after step {died_at}, resumed on {again}",
                     f"goes on to step {step}; loss {loss:.4f}, of a run that was not killed {whole:.4f}"])
    served = kill_server(trial, ranks)
    check.note("faults", "server killed in a stream", **served)
    rows.append([f"a server on {ranks} ranks, killed in the middle of a stream",
                 f"the client gets {served['client']} after {served['waited']} s; the next server gives the same "
                 f"answer: {served['same_answer']}"])
    shutil.rmtree(trial.work)
    lines = "".join(f"| {what} | {result} |\n" for what, result in rows)
    return f"| what was tried | what happened |\n|---|---|\n{lines}"
