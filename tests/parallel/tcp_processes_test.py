"""Ranks that are processes without MPI, which the environment tells their rank, as torchrun and PyTorchJob do.

    tests/parallel/tcp_processes_test.py WINNOW PARALLEL_TEST
"""
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from processes import ROOT, Processes

MODEL = "assets/dms-cr8"
# Of no launcher, even if one runs this test.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith(("OMPI_", "PMI_", "SLURM_", "TORCHELASTIC_", "LOCAL_"))}


def listen(port: int) -> socket.socket | None:
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError:
        return None


def free_port(count: int = 1) -> int:
    """The first of `count` free ports, not of those that the system gives to connections of other tests."""
    while True:
        first = random.randrange(20_000, 32_000)
        servers = [listen(first + i) for i in range(count)]
        for server in filter(None, servers):
            server.close()
        if all(servers):
            return first


class Group:
    """Runs commands, one per rank, and keeps what they write."""

    def __init__(self, test: Processes, *commands: list[str], size: int | None = None, **variables: str):
        self.test = test
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=test.folder.name))
        self.environment = ENVIRONMENT | {"WORLD_SIZE": str(size or len(commands)), "MASTER_ADDR": "127.0.0.1",
                                          "MASTER_PORT": str(free_port())} | variables
        self.ranks = {}
        for rank, command in enumerate(commands):
            self.start(rank, command)

    def start(self, rank: int, command: list[str]) -> None:
        with open(self.log(rank), "w") as log:
            self.ranks[rank] = subprocess.Popen(command, cwd=ROOT, env=self.environment | {"RANK": str(rank)},
                                                stdout=log, stderr=subprocess.STDOUT)
        self.test.addCleanup(self.end, self.ranks[rank])

    def log(self, rank: int) -> pathlib.Path:
        return self.folder / f"rank{rank}.log"

    @staticmethod
    def end(process: subprocess.Popen) -> None:
        process.kill()
        process.wait()

    def wait(self, *ranks: int, within: float = 120) -> list[int]:
        """The exit codes of these ranks, or of all."""
        end = time.monotonic() + within
        return [self.ranks[rank].wait(timeout=max(0.1, end - time.monotonic()))
                for rank in ranks or sorted(self.ranks)]

    def output(self, rank: int) -> str:
        return self.log(rank).read_text()


def alone(command: list[str]) -> str:
    """What one process writes."""
    result = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return result.stdout


class TcpProcesses(Processes):
    def succeed(self, *commands: list[str], **variables: str) -> Group:
        group = Group(self, *commands, **variables)
        codes = group.wait()
        self.assertEqual(codes, [0] * len(codes), [group.output(rank) for rank in range(len(codes))])
        return group

    def generate(self, *more: str, tokens: int = 16) -> list[str]:
        return [self.winnow, "generate", "--model", MODEL, "--prompt", "The sea was", "--max-tokens", str(tokens),
                "--temperature", "0", "--threads", "1", *more]

    @staticmethod
    def conversation() -> list[str]:
        return [PARALLEL_TEST, "--gtest_filter=ProcessRanks.*"]

    def test_they_converse(self):
        group = self.succeed(*[self.conversation()] * 3)
        for rank in range(3):
            self.assertRegex(group.output(rank), "PASSED.*1 test")

    def test_they_compute_what_threads_do(self):
        alone(self.logits("--tensor-parallel", "2"))
        threads = self.output.read_bytes()
        self.output.unlink()
        group = self.succeed(*[self.logits("--tensor-parallel", "2")] * 2)
        self.assertEqual(self.output.read_bytes(), threads)
        self.assertEqual(group.output(1), "")  # ends without a word

    def test_they_generate_what_one_does(self):
        text = alone(self.generate())
        group = self.succeed(*[self.generate("--tensor-parallel", "2")] * 2)
        self.assertTrue(group.output(0).startswith(text), group.output(0))
        self.assertEqual(group.output(1), "")

    def test_torchruns_port_stays_its_own(self):
        with socket.create_server(("127.0.0.1", free_port(2))) as store:
            self.succeed(*[self.logits("--tensor-parallel", "2")] * 2, MASTER_PORT=str(store.getsockname()[1]),
                         TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RUN_ID="none", LOCAL_WORLD_SIZE="2")

    def test_their_number_is_checked(self):
        group = Group(self, *[self.logits("--tensor-parallel", "2")] * 3)
        self.assertNotIn(0, group.wait(within=30))
        for rank in range(3):
            self.assertIn("--tensor-parallel 2: 3 ranks were started", group.output(rank))
        self.assertFalse(self.output.exists())

    def test_their_settings_are_compared(self):
        group = Group(self, *[self.logits("--tensor-parallel", "2", "--chunk", chunk) for chunk in ("7", "8")])
        self.assertEqual(group.wait(within=30), [1, 1])
        self.assertIn("rank 1: has tokens per step 8, rank 0 has tokens per step 7", group.output(1))
        self.assertIn("rank 1 has failed", group.output(0))
        self.assertFalse(self.output.exists())

    def test_a_taken_port_is_named(self):
        with socket.create_server(("127.0.0.1", free_port())) as other:
            port = other.getsockname()[1]
            group = Group(self, self.logits("--tensor-parallel", "2"), size=2, MASTER_PORT=str(port))
            self.assertEqual(group.wait(within=30), [1])
        self.assertIn(f"rank 0 cannot listen at 127.0.0.1:{port} (MASTER_PORT): Address already in use",
                      group.output(0))

    def test_a_rank_may_start_late_or_again(self):
        """Before the group is complete, a rank that has ended can come again."""
        group = Group(self, self.conversation(), self.conversation(), size=3)
        time.sleep(1)
        group.ranks[1].kill()
        group.start(1, self.conversation())
        group.start(2, self.conversation())
        self.assertEqual(group.wait(), [0, 0, 0], group.output(0))

    def test_a_server_answers_and_ends_quietly(self):
        text = alone(self.generate(tokens=4))
        group = Group(self, *[self.serving()] * 2)
        answer = self.ask(self.wait_for_port(group.log(0)))
        self.assertIn(answer["choices"][0]["text"].strip(), text)
        for rank in group.ranks.values():  # as torchrun and Kubernetes end them
            rank.terminate()
        self.assertEqual(group.wait(within=30), [0, 0], group.output(0) + group.output(1))
        self.assertNotIn("error", group.output(0) + group.output(1))

    def test_a_server_ends_with_a_rank(self):
        """Idle ranks notice, too."""
        for dead, other in ((0, 1), (1, 0)):
            with self.subTest(dead=dead):
                group = Group(self, *[self.serving()] * 2)
                self.ask(self.wait_for_port(group.log(0)))
                group.ranks[dead].kill()
                self.assertNotEqual(group.wait(other, within=30), [0])
                self.assertIn(f"rank {dead} has ended", group.output(other))

    def test_busy_ranks_end_with_a_rank(self):
        """Even if they are in a call that waits for that rank without end."""
        for end, reason in ((signal.SIGKILL, "rank 2 has ended"),
                            (signal.SIGSTOP, "rank 0 has heard nothing of rank 2 for 20 s")):
            with self.subTest(signal=end):
                group = Group(self, *[[PARALLEL_TEST, "--gtest_also_run_disabled_tests",
                                       "--gtest_filter=ProcessRanks.DISABLED_AreBusy"]] * 3)
                for rank in range(3):
                    self.wait_for_text("busy", group.log(rank))
                group.ranks[2].send_signal(end)
                self.assertEqual(group.wait(0, 1, within=30), [1, 1])
                for rank in (0, 1):
                    self.assertIn(f"winnow: error: {reason}", group.output(rank))

    def test_they_train_with_the_same_flags(self):
        group = Group(self, *[self.training("out", "--lr", rate) for rate in ("0.01", "0.02")])
        self.assertEqual(group.wait(within=30), [1, 1])
        for rank in (0, 1):
            self.assertIn("rank 1: has --lr 0.02, rank 0 has --lr 0.01", group.output(rank))

    def test_they_train_what_threads_do(self):
        for stage in ("1", "3"):
            with self.subTest(zero_stage=stage):
                outs = [f"{ranks}{stage}" for ranks in ("threads", "processes")]
                threads, processes = [self.training(out, "--zero-stage", stage) for out in outs]
                alone(threads)
                group = self.succeed(processes, processes)
                self.assertEqual(*[(self.in_folder(out) / "model.safetensors").read_bytes() for out in outs])
                self.assertEqual(group.output(0).count("the model after 12 steps"), 1)  # rank 0 alone reports
                self.assertEqual(group.output(1), "")

    def test_training_ends_with_a_rank_and_goes_on(self):
        command = self.training("out", "--schedule", "constant", steps=5000)
        group = Group(self, command, command)
        self.wait_for_state("out")
        group.ranks[1].kill()
        self.assertEqual(group.wait(0, within=30), [1])
        self.assertIn("rank 1 has ended", group.output(0))
        done = len(self.losses("out"))
        self.assertGreaterEqual(done, 5)
        again = Group(self, *[[*command, "--resume"]] * 2)
        for _ in range(600):
            losses = self.losses("out")
            if len(losses) > done + 2:
                break
            time.sleep(0.1)
        for rank in again.ranks.values():
            rank.send_signal(signal.SIGINT)
        self.assertEqual(again.wait(within=60), [130, 0], again.output(0))
        self.assertNotIn("error", again.output(0) + again.output(1))
        self.assertEqual([step for step, _ in losses], list(range(1, len(losses) + 1)))

    def test_all_end_when_a_rank_stops(self):
        """A process that is there but does nothing: the others would wait for it without end."""
        groups = {stopped: Group(self, *[self.training(f"out{stopped}", "--schedule", "constant", steps=100000)] * 2)
                  for stopped in (0, 1)}
        started = {}
        for stopped, group in groups.items():
            self.wait_for_state(f"out{stopped}")
            os.kill(group.ranks[stopped].pid, signal.SIGSTOP)
            started[stopped] = time.monotonic()
        for stopped, group in groups.items():
            other = 1 - stopped
            self.assertNotEqual(group.wait(other, within=started[stopped] + 30 - time.monotonic()), [0])
            self.assertIn(f"rank {other} has heard nothing of rank {stopped} for 20 s", group.output(other))
            os.kill(group.ranks[stopped].pid, signal.SIGCONT)
            self.assertNotEqual(group.wait(stopped, within=30), [0])


if __name__ == "__main__":
    Processes.winnow, PARALLEL_TEST = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1])
