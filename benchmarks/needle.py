"""Who still finds a needle: one sentence hidden in a long text, asked for at its end, under every rule.

    python benchmarks/needle.py --hay essays.txt --output docs/results/needle.json

Each prompt hides one sentence of assets/make/tasks.py at one of five depths in running text of the
given length; an answer counts when it is that sentence. The dense base runs under the rules that need
no training, the DMS student under its own. Greedy, through `winnow generate`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random

HERE = Path(__file__).resolve().parent
ASSETS = HERE.parent / "assets"
sys.path.insert(0, str(ASSETS / "make"))
import tasks  # noqa: E402

FACTS = (tasks.office_code, tasks.hidden_object, tasks.train_time, tasks.meeting, tasks.phone_number)
DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.9)
CHARACTERS_PER_TOKEN = 3.6  # of the demo model's vocabulary on prose, at least


def configurations() -> list:
    """(name, model, flags)"""
    rows = [("dense", "base", ["--cache", "dense"])]
    rows += [(f"{rule}, CR {ratio}", "base", ["--cache", rule, "--cr", str(ratio)])
             for rule in ("streaming", "tova", "h2o", "quest") for ratio in (4, 8)]
    return [*rows, ("DMS", "dms-cr8", [])]


def make_cases(hay: str, tokens: int, count: int) -> list:
    """(prompt, answer) pairs."""
    rng = Random(1)
    size = int(tokens * CHARACTERS_PER_TOKEN)
    cases = []
    for i in range(count):
        fact = FACTS[i % len(FACTS)](rng)
        question, answer = fact.questions[0]
        start = rng.randrange(len(hay) - size)
        text = hay[hay.index(" ", start) + 1:start + size]
        at = text.index(" ", int(DEPTHS[i // len(FACTS) % len(DEPTHS)] * len(text)))
        prompt = f"{text[:at]} {fact.sentences[0]}{text[at:]}\n\nQuestion: {question}\nAnswer:"
        cases.append((prompt, answer))
    return cases


def run(binary: Path, model: str, flags: list, prompt: str) -> dict:
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
        file.write(prompt)
        file.flush()
        command = [str(binary), "generate", "--model", str(ASSETS / model), "--prompt-file", file.name,
                   "--max-tokens", "40", "--temperature", "0", "--json", *flags]
        return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=HERE.parent / "build/release/bin/winnow")
    parser.add_argument("--hay", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=3600)
    parser.add_argument("--count", type=int, default=25)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()

    cases = make_cases(" ".join(args.hay.read_text().split()), args.tokens, args.count)
    results = []
    print("| rule | needles found | prompt tokens | CR at the end |")
    print("|---|---|---|---|")
    for name, model, flags in configurations():
        answers = [run(args.binary, model, flags, prompt) for prompt, _ in cases]
        found = [answer["text"].strip().startswith(expected)
                 for answer, (_, expected) in zip(answers, cases)]
        ratio = sum(answer["kv"]["compression_ratio"] for answer in answers) / len(answers)
        length = sum(answer["prompt_tokens"] for answer in answers) / len(answers)
        results.append({"name": name, "model": f"assets/{model}", "flags": flags, "found": found,
                        "prompt_tokens": length, "compression_ratio": ratio,
                        "texts": [answer["text"] for answer in answers]})
        print(f"| {name} | {sum(found)} of {len(found)} | {length:.0f} | {ratio:.2f} |", flush=True)
        args.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
