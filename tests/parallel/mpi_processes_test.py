"""Ranks that are processes: what mpirun starts computes what threads of one process do, and fails as a whole.

    tests/parallel/mpi_processes_test.py MPIRUN WINNOW PARALLEL_TEST
"""
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest

from processes import ROOT, Processes

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


class MpiProcesses(Processes):
    def test_they_converse(self):
        result = run(mpirun([PARALLEL_TEST, "--gtest_filter=ProcessRanks.*"], ranks=3))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(len(re.findall(r"PASSED.*1 test", result.stdout)), 3)

    def test_they_compute_what_threads_do(self):
        alone = run(self.logits("--tensor-parallel", "2"))
        self.assertEqual(alone.returncode, 0, alone.stderr)
        threads = self.output.read_bytes()
        self.output.unlink()
        result = run(mpirun(self.logits("--tensor-parallel", "2"), ranks=2))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.output.read_bytes(), threads)

    def test_their_number_is_checked(self):
        result = run(mpirun(self.logits("--tensor-parallel", "2"), ranks=3))
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("--tensor-parallel 2: 3 ranks were started", result.stderr)
        self.assertFalse(self.output.exists())

    def test_their_settings_are_compared(self):
        commands = [self.logits("--tensor-parallel", "2", "--chunk", chunk) for chunk in ("7", "8")]
        result = run(mpirun(*commands))
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("rank 1: has tokens per step 8, rank 0 has tokens per step 7", result.stderr)
        self.assertFalse(self.output.exists())

    def test_a_server_ends_with_a_rank(self):
        command = self.serving()
        with open(pathlib.Path(self.folder.name) / "log", "w+") as log:
            server = subprocess.Popen(mpirun(command, ranks=2), cwd=ROOT, env=ENVIRONMENT, stdout=log,
                                      stderr=subprocess.STDOUT)
            self.addCleanup(server.wait)
            self.addCleanup(server.terminate)
            port = self.wait_for_port(pathlib.Path(log.name))
            self.assertEqual(self.ask(port)["usage"]["completion_tokens"], 4)
            os.kill(self.ranks_of(server)[-1], signal.SIGKILL)
            started = time.monotonic()
            self.assertNotEqual(server.wait(timeout=60), 0)
            self.assertLess(time.monotonic() - started, 30)

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
            self.wait_for_state("out")
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
            self.wait_for_state(f"out{stopped}")
            rank = self.ranks_of(launcher)[stopped]
            os.kill(rank, signal.SIGSTOP)
            self.addCleanup(lambda pid=rank: pathlib.Path(f"/proc/{pid}").exists() and os.kill(pid, signal.SIGKILL))
            started = time.monotonic()
            output, _ = launcher.communicate(timeout=60)
            self.assertLess(time.monotonic() - started, 30)
            self.assertNotEqual(launcher.returncode, 0)
            self.assertIn(f"rank {other} has heard nothing of rank {stopped} for 20 s", output)

    @staticmethod
    def ranks_of(launcher: subprocess.Popen) -> list[int]:
        children = pathlib.Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text()
        return sorted(int(child) for child in children.split())


if __name__ == "__main__":
    MPIRUN, Processes.winnow, PARALLEL_TEST = sys.argv[1:4]
    unittest.main(argv=sys.argv[:1])
