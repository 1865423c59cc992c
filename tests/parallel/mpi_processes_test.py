"""Ranks that are processes: what mpirun starts computes what threads of one process do, and fails as a whole.

    tests/parallel/mpi_processes_test.py MPIRUN WINNOW PARALLEL_TEST
"""
import json
import os
import pathlib
import re
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
