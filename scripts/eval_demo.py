"""The headline table: what every rule costs on the demo models, in one engine, by one set of measures.

    python3 scripts/eval_demo.py --out build/eval-demo

Runs `winnow eval` for every rule and ratio: the dense base under the rules that need no training, the DMS
student under its own, both with quantised entries. Needs a clone and the Python standard library alone.
Results that are there already are kept: an interrupted run goes on.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "assets/make"))
import tasks  # noqa: E402

RATIOS = (2, 4, 8)
LENGTH = 4096  # the context that the models were trained with
PROBLEMS = 60
PROBLEM_KINDS = {"arithmetic": tasks.arithmetic, "equations": tasks.linear_equation}


def configurations() -> list:
    """(name, model, flags)"""
    rows = [("dense", "base", [])]
    rows += [(f"dense {kind}", "base", ["--kv-dtype", kind]) for kind in ("fp8", "int8")]
    for rule in ("h2o", "tova", "streaming", "quest"):
        rows += [(f"{rule} {ratio}x", "base", ["--cache", rule, "--cr", str(ratio)]) for ratio in RATIOS]
    rows += [("dms", "dms-cr8", [])]
    rows += [(f"dms {kind}", "dms-cr8", ["--kv-dtype", kind]) for kind in ("fp8", "int8")]
    return rows


def write_text(path: Path) -> None:
    """Prose that the models have not seen, and the licence: all the text a clone is sure to have."""
    prose = (ROOT / "assets/demo_prompt.txt").read_text().split("\n\nQuestion:")[0]
    hidden = "The secret code of the Lisbon office is 48213."
    path.write_text(prose.replace(hidden, "") + "\n" + (ROOT / "LICENSE").read_text())


def write_problems(path: Path, draw) -> None:
    rng = Random(20261121)
    lines = []
    for _ in range(PROBLEMS):
        problem = draw(rng)
        lines.append(json.dumps({"question": problem.question, "answer": f"{problem.answer} #### {problem.result}"}))
    path.write_text("\n".join(lines) + "\n")


def measures(out: Path) -> list:
    """(name, arguments of winnow eval)"""
    text = str(out / "text.txt")
    problems = [(name, ["tasks", "--task", "gsm8k", "--data", str(out / f"{name}.jsonl"), "--chat",
                        "--max-tokens", "120"])
                for name in PROBLEM_KINDS]
    return [
        ("perplexity", ["perplexity", "--text", text, "--reference", "assets/base"]),
        ("needle", ["needle", "--text", text, "--lengths", str(LENGTH), "--repeats", "2"]),
        ("variables", ["variables", "--text", text, "--lengths", str(LENGTH), "--style", "plain", "--chains", "3",
                       "--hops", "2", "--repeats", "10", "--max-tokens", "80"]),
        *problems,
    ]


def run(binary: Path, arguments: list, result: Path) -> dict:
    if not (ROOT / result).exists():
        subprocess.run([str(binary), "eval", *arguments, "--out", str(result)], check=True, cwd=ROOT,
                       stdout=subprocess.DEVNULL)
    return json.loads((ROOT / result).read_text())


def cell(measure: str, result: dict) -> str:
    if measure == "perplexity":
        return f"{result['perplexity']:.2f} | {result['kld']:.4f}"
    return f"{100 * result['accuracy']:.0f} ± {100 * result['accuracy_error']:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "build/release/bin/winnow")
    parser.add_argument("--out", type=Path, default=ROOT / "build/eval-demo")
    parser.add_argument("--threads", type=int, default=0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    out = args.out.resolve()
    out = out.relative_to(ROOT) if out.is_relative_to(ROOT) else out
    write_text(ROOT / out / "text.txt")
    for name, draw in PROBLEM_KINDS.items():
        write_problems(ROOT / out / f"{name}.jsonl", draw)

    columns = measures(out)
    total = len(configurations()) * len(columns)
    lines = ["| cache | perplexity | KLD | needle, % | variables, % | arithmetic, % | equations, % | CR | KiB | KV reads | peak |",
             "|---|---|---|---|---|---|---|---|---|---|---|"]
    done = 0
    for name, model, flags in configurations():
        cells = []
        results = {}
        for measure, arguments in columns:
            print(f"[{done + 1}/{total}] {name}: {measure}", file=sys.stderr, flush=True)
            result = out / f"{measure}-{name.replace(' ', '-')}.json"
            results[measure] = run(args.binary, [*arguments, "--model", f"assets/{model}", *flags, "--threads",
                                                 str(args.threads)], result)
            cells.append(cell(measure, results[measure]))
            done += 1
        needle = results["needle"]
        lines.append(f"| {name} | {' | '.join(cells)} | {needle['compression_ratio']:.2f} | "
                     f"{needle['kv_bytes'] / 1024:.0f} | {needle['kv_reads']:.0f} | {needle['peak_tokens']:.0f} |")
    table = "\n".join(lines) + "\n"
    (ROOT / out / "table.md").write_text(table)
    print(table)


if __name__ == "__main__":
    main()
