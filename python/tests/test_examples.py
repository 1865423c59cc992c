"""The examples run, on the demo model."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import DMS, ROOT

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def run(name: str, *arguments: object, stdin: str = "") -> str:
    command = [sys.executable, str(EXAMPLES / name), str(DMS), *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_chat():
    output = run("chat.py", "--max-tokens", 8, stdin="Who are you?\nAnd then?\n\n")
    assert output.count("x smaller]") == 2


def test_batch(tmp_path):
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("The sea\nThe captain\n")
    lines = run("batch.py", prompts, "--max-tokens", 4, "--kv-dtype", "fp8").splitlines()
    assert [json.loads(line)["prompt"] for line in lines] == ["The sea", "The captain"]


def test_majority_vote():
    output = run("majority_vote.py", "12 and 30 make", "--chains", 4, "--max-tokens", 12, "--plain")
    assert "entries held by all chains" in output


def test_live_entries(tmp_path):
    pytest.importorskip("matplotlib")
    plot = tmp_path / "heads.svg"
    output = run(
        "live_entries.py", ROOT / "assets/demo_prompt.txt", "--tokens", 300, "--plot", plot
    )
    assert output.count("layer") == 8 and "300 tokens" in output
    assert "<svg" in plot.read_text()
