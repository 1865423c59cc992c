"""Ranks that are processes: what mpirun starts computes what threads of one process do, and fails as a whole.

    tests/parallel/mpi_processes_test.py MPIRUN WINNOW PARALLEL_TEST
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = "tests/fixtures/models/dms-own"
# Open MPI: as root and on fewer cores than ranks, as in a container. Others ignore these.
ENVIRONMENT = os.environ | {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}


def mpirun(*commands: list[str], ranks: int = 1) -> list[str]:
    """The command line that starts each command on `ranks` ranks."""
    words = [MPIRUN]
    for i, command in enumerate(commands):
        words += [":"] * (i > 0) + ["-n", str(ranks), *command]
    return words


def run(words: list[str]) -> subprocess.CompletedProcess:
    return subprocess.run(words, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)


def logits(output: pathlib.Path, *more: str) -> list[str]:
    return [WINNOW, "logits", "--model", MODEL, "--tokens", "1,2,3,4,5,6,7,8,9,10", "--dtype", "fp32",
            "--threads", "1", "--output", str(output), *more]


class Processes(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.output = pathlib.Path(self.folder.name) / "logits.safetensors"

    def test_they_converse(self):
        result = run(mpirun([PARALLEL_TEST, "--gtest_filter=MpiRanks.*"], ranks=3))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(len(re.findall(r"PASSED.*1 test", result.stdout)), 3)

    def test_they_compute_what_threads_do(self):
        alone = run(logits(self.output, "--tensor-parallel", "2"))
        self.assertEqual(alone.returncode, 0, alone.stderr)
        threads = self.output.read_bytes()
        self.output.unlink()
        result = run(mpirun(logits(self.output, "--tensor-parallel", "2"), ranks=2))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.output.read_bytes(), threads)

    def test_their_number_is_checked(self):
        result = run(mpirun(logits(self.output, "--tensor-parallel", "2"), ranks=3))
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("--tensor-parallel 2: 3 ranks were started", result.stderr)
        self.assertFalse(self.output.exists())

    def test_their_settings_are_compared(self):
        commands = [logits(self.output, "--tensor-parallel", "2", "--chunk", chunk) for chunk in ("7", "8")]
        result = run(mpirun(*commands))
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("rank 1: has tokens per step 8, rank 0 has tokens per step 7", result.stderr)
        self.assertFalse(self.output.exists())

    def test_a_server_ends_with_a_rank(self):
        command = [WINNOW, "serve", "--model", "assets/dms-cr8", "--port", "0", "--tensor-parallel", "2",
                   "--threads", "1"]
        with open(pathlib.Path(self.folder.name) / "log", "w+") as log:
            server = subprocess.Popen(mpirun(command, ranks=2), cwd=ROOT, env=ENVIRONMENT, stdout=log,
                                      stderr=subprocess.STDOUT)
            self.addCleanup(server.wait)
            self.addCleanup(server.terminate)
            port = self.wait_for_port(pathlib.Path(log.name))
            body = json.dumps({"prompt": "The sea was", "max_tokens": 4, "temperature": 0}).encode()
            request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body,
                                             {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                self.assertEqual(json.load(answer)["usage"]["completion_tokens"], 4)
            os.kill(self.ranks_of(server)[-1], signal.SIGKILL)
            started = time.monotonic()
            self.assertNotEqual(server.wait(timeout=60), 0)
            self.assertLess(time.monotonic() - started, 30)

    def training(self, out: str, *more: str, steps: int = 12) -> list[str]:
        return [WINNOW, "train", "--init", str(self.shape()), "--out", str(self.in_folder(out)),
                "--data", str(self.in_folder("data.jsonl")), "--length", "32", "--batch", "4", "--steps", str(steps),
                "--save-every", "5", "--dtype", "fp32", "--threads", "1", "--data-parallel", "2", *more]

    def in_folder(self, name: str) -> pathlib.Path:
        return pathlib.Path(self.folder.name) / name

    def shape(self) -> pathlib.Path:
        """A model of a few numbers, and something to read."""
        shape = self.in_folder("shape")
        if not shape.exists():
            shape.mkdir()
            for name in ("tokenizer.json", "tokenizer_config.json"):
                shutil.copy(ROOT / "assets/base" / name, shape)
            config = json.loads((ROOT / "assets/base/config.json").read_text())
            config |= {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
                       "num_attention_heads": 4, "head_dim": 8, "torch_dtype": "float32"}
            (shape / "config.json").write_text(json.dumps(config))
            lines = [json.dumps({"text": f"Number {i} is followed by {i + 1}."}) for i in range(60)]
            self.in_folder("data.jsonl").write_text("\n".join(lines) + "\n")
        return shape

    def test_they_train_what_threads_do(self):
        for stage in ("1", "3"):
            with self.subTest(zero_stage=stage):
                outs = [f"{ranks}{stage}" for ranks in ("threads", "processes")]
                commands = [self.training(out, "--zero-stage", stage) for out in outs]
                alone = run(commands[0])
                self.assertEqual(alone.returncode, 0, alone.stderr)
                result = run(mpirun(commands[1], ranks=2))
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(*[(self.in_folder(out) / "model.safetensors").read_bytes() for out in outs])
                self.assertEqual(result.stdout.count("the model after 12 steps"), 1)  # rank 0 alone reports

    def test_they_train_with_the_same_flags(self):
        commands = [self.training("out", "--lr", rate) for rate in ("0.01", "0.02")]
        result = run(mpirun(*commands))
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("rank 1: has --lr 0.02, rank 0 has --lr 0.01", result.stderr)
        result = run(mpirun(self.training("out"), ranks=3))
        self.assertIn("--data-parallel 2: 3 ranks were started", result.stderr)

    def test_training_ends_with_a_rank_and_goes_on(self):
        command = self.training("out", "--schedule", "constant", steps=5000)
        with open(self.in_folder("log"), "w+") as log:
            launcher = subprocess.Popen(mpirun(command, ranks=2), cwd=ROOT, env=ENVIRONMENT,
                                        stdout=log, stderr=subprocess.STDOUT)
            self.addCleanup(launcher.wait)
            state = self.in_folder("out") / "training/state.safetensors"
            for _ in range(600):
                if state.exists():
                    break
                time.sleep(0.1)
            os.kill(self.ranks_of(launcher)[-1], signal.SIGKILL)
            started = time.monotonic()
            self.assertNotEqual(launcher.wait(timeout=60), 0)
            self.assertLess(time.monotonic() - started, 30)
        with open(self.in_folder("out") / "training/metrics.jsonl") as metrics:
            done = len(metrics.readlines())
        self.assertGreaterEqual(done, 5)
        again = subprocess.Popen([*command, "--resume"], cwd=ROOT, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT)
        self.addCleanup(again.communicate)
        for _ in range(600):
            losses = self.losses("out")
            if len(losses) > done + 2:
                break
            time.sleep(0.1)
        again.send_signal(signal.SIGINT)
        self.assertEqual(again.wait(timeout=60), 130)
        self.assertGreater(len(losses), done + 2)
        self.assertEqual([step for step, _ in losses], list(range(1, len(losses) + 1)))

    def test_training_ends_when_a_rank_stops(self):
        """A process that is there but does nothing: the others would wait for it without end."""
        for stopped, other in ((0, 1), (1, 0)):
            command = self.training(f"out{stopped}", "--schedule", "constant", steps=100000)
            launcher = subprocess.Popen(mpirun(command, ranks=2), cwd=ROOT, env=ENVIRONMENT, text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.addCleanup(launcher.kill)
            state = self.in_folder(f"out{stopped}") / "training/state.safetensors"
            for _ in range(600):
                if state.exists():
                    break
                time.sleep(0.1)
            rank = self.ranks_of(launcher)[stopped]
            os.kill(rank, signal.SIGSTOP)
            self.addCleanup(lambda pid=rank: pathlib.Path(f"/proc/{pid}").exists() and os.kill(pid, signal.SIGKILL))
            started = time.monotonic()
            output, _ = launcher.communicate(timeout=60)
            self.assertLess(time.monotonic() - started, 30)
            self.assertNotEqual(launcher.returncode, 0)
            self.assertIn(f"rank {other} has heard nothing of rank {stopped} for 20 s", output)

    def losses(self, out: str) -> list[tuple[int, float]]:
        lines = (self.in_folder(out) / "training/metrics.jsonl").read_text().split("\n")[:-1]  # whole ones
        return [(line["step"], line["loss"]) for line in map(json.loads, lines)]

    def wait_for_port(self, log: pathlib.Path) -> int:
        for _ in range(600):
            found = re.search(r'"?port"?[=:] ?(\d+)', log.read_text())
            if found:
                return int(found[1])
            time.sleep(0.1)
        self.fail(log.read_text())

    @staticmethod
    def ranks_of(launcher: subprocess.Popen) -> list[int]:
        children = pathlib.Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text()
        return sorted(int(child) for child in children.split())


if __name__ == "__main__":
    MPIRUN, WINNOW, PARALLEL_TEST = sys.argv[1:4]
    unittest.main(argv=sys.argv[:1])
