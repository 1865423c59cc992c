"""The headline table: what every cache costs the models in assets/, by `winnow eval` (benchmarks/quality.py).

    python3 scripts/eval_demo.py --out build/eval-demo

Needs a clone and the Python standard library alone. Results that are there already are kept: an interrupted run
goes on.
"""

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
import quality  # noqa: E402


def held_out_text() -> str:
    """Prose that the models have not seen, and the licence: text that every clone has."""
    prose = (ROOT / "assets/demo_prompt.txt").read_text().split("\n\nQuestion:")[0]
    return prose.replace("The secret code of the Lisbon office is 48213.", "") + "\n" + (ROOT / "LICENSE").read_text()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "build/release/bin/winnow")
    parser.add_argument("--out", type=Path, default=ROOT / "build/eval-demo")
    parser.add_argument("--ratios", default="4,8", help="of the rules that need no training")
    parser.add_argument("--formats", default="fp8", help="of entries beside bf16")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="runs at a time, a thread each")
    args = parser.parse_args()
    binary, out = args.binary.resolve(), args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)  # results name files as anybody with a clone would
    if out.is_relative_to(ROOT):
        out = out.relative_to(ROOT)
    text = out / "text.txt"
    text.write_text(held_out_text())
    quality.main([
        "--winnow", str(binary), "--base", "assets/base", "--students", "dms=assets/dms-cr8",
        "--rules", "h2o,tova,streaming,quest", "--ratios", args.ratios,
        "--formats", f"dense={args.formats}", f"dms={args.formats}", "--text", f"prose={text}", "--hay", str(text), "--lengths", "4096",
        "--eval-tokens", "0", "--problems", "40", "--repeats", "2", "--places", f"cpu={args.jobs}",
        "--work", str(out / "cells"), "--out", str(out / "table"),
    ])  # fmt: skip


if __name__ == "__main__":
    main()
