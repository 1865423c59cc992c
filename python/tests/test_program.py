"""The program in the wheel."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path


def test_the_wheel_brings_the_program() -> None:
    program = Path(sys.executable).with_name("winnow")
    run = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split()[:2] == ["winnow", version("winnow")]  # the commit may follow
