"""The hints hold: the package, its examples, and a caller's mistakes."""

import subprocess
import sys
from pathlib import Path

import winnow

ROOT = Path(__file__).resolve().parents[1]

CALLER = """
import winnow
llm = winnow.LLM("model", cr=2.0)
for chunk in llm.stream([1, 2], winnow.SamplingParams(n=2)):
    reveal_type(chunk.text)
reveal_type(llm.generate("a")[0].kv.live_entries)
llm.generate("a", winnow.SamplingParams(max_tokens="many"))
llm.logits(3)
winnow.LLM("model", colour="red")
"""


def mypy(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", ROOT / "pyproject.toml"]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, cwd="/")
    return done.returncode, done.stdout + done.stderr


def test_package_and_examples():
    examples = sorted(str(file) for file in (ROOT / "examples").glob("*.py"))
    code, output = mypy("-p", "winnow")
    assert code == 0, output
    code, output = mypy("--scripts-are-modules", *examples)
    assert code == 0, output


def test_a_callers_mistakes_are_found(tmp_path):
    file = tmp_path / "caller.py"
    file.write_text(CALLER)
    code, output = mypy(str(file))
    lines = [line.split(": ", 1)[1] for line in output.splitlines() if "caller.py" in line]
    assert code == 1
    assert sum(line.startswith("error") for line in lines) == 3, output
    notes = [line for line in lines if line.startswith("note: Revealed type")]
    assert "str" in notes[0] and "ndarray" in notes[1]


def test_all_that_is_exported_is_documented():
    for name in winnow.__all__:
        assert getattr(winnow, name) is not None
    assert (Path(winnow.__file__).parent / "py.typed").exists()
