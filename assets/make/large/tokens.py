"""Trains the vocabulary on all sources, and turns each into a stream of token ids.

    python tokens.py --corpus DIR --text text/ --eval DIR --out WORK

WORK gets shape/ (tokenizer and config.json), tokens/SOURCE.u16: `<|begin_of_text|> document
<|end_of_text|>` one after another, documents shuffled, as little-endian 16-bit numbers; and held-out/SET.txt.
"""

import argparse
import itertools
import json
import random
import shutil
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import tasks
import tokenizer as vocabulary
from corpus import SOURCES, documents, gsm8k_problems
from reasoning import problem as program

VOCAB_SIZE = 16384
CONTEXT = 8192
PACKAGE_CLASSES = ["prose", "encyclopedia", "docs", "code"]
MOST_CHARACTERS = 12_000_000  # of a source, for the vocabulary
MOST_DOCS = 34_000_000  # characters of the C++ pages, which are many and alike


def sources(corpus: Path, text: Path) -> dict[str, list[str]]:
    """Documents by source, in random order."""
    found = {name: list(documents(corpus / f"{name}.train.jsonl.zst")) for name in SOURCES}
    for name in PACKAGE_CLASSES:
        with open(text / f"{name}.jsonl", encoding="utf-8") as lines:
            found[f"packages-{name}"] = [json.loads(line)["text"] for line in lines]
    for name in sorted(found):
        random.Random(0).shuffle(found[name])
    found["docs"] = at_most(found["docs"], MOST_DOCS)
    return found


def at_most(texts: list[str], characters: int) -> list[str]:
    """The first texts, whole, that together have no more characters than these."""
    ends = itertools.accumulate(map(len, texts))
    return [text for text, end in zip(texts, ends) if end <= characters]


def vocabulary_text(found: dict[str, list[str]], gsm8k: Path):
    rng = random.Random(0)
    for texts in found.values():
        room = MOST_CHARACTERS
        for text in texts:
            yield text[: max(room, 0)]
            room -= len(text)
    for problem in gsm8k_problems(gsm8k):
        yield f"{problem.question}\n{problem.answer}"
    for _ in range(5000):
        problem, fact = tasks.problem(rng), tasks.fact(rng)
        yield f"{problem.question}\n{problem.answer}"
        yield "\n".join(fact.sentences + [text for pair in fact.questions for text in pair])
    for _ in range(500):
        drawn = program(rng)
        yield drawn.question + drawn.solution


def encode(tokenizer, texts: list[str]) -> np.ndarray:
    begin, end = tokenizer.token_to_id(vocabulary.BOS), tokenizer.token_to_id(vocabulary.EOS)
    parts = []
    for start in range(0, len(texts), 1000):  # batch by batch: encodings take much memory
        for encoding in tokenizer.encode_batch(texts[start : start + 1000], add_special_tokens=False):
            parts.append(np.array([begin, *encoding.ids, end], dtype="<u2"))
    return np.concatenate(parts)


def write_held_out(corpus: Path, evaluation: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name in SOURCES:
        (out / f"{name}.txt").write_text("\n\n".join(documents(corpus / f"{name}.valid.jsonl.zst")))
    for name in ("wikitext2.test", "essays"):
        shutil.copyfile(evaluation / f"{name}.txt", out / f"{name}.txt")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True, help="what packages.py made")
    parser.add_argument("--eval", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()

    write_held_out(args.corpus, args.eval, args.out / "held-out")
    found = sources(args.corpus, args.text)
    tokenizer = vocabulary.train(vocabulary_text(found, args.eval / "gsm8k.train.jsonl"), VOCAB_SIZE)
    vocabulary.save(tokenizer, args.out / "shape", CONTEXT)
    shutil.copy(Path(__file__).with_name("config.json"), args.out / "shape")
    (args.out / "tokens").mkdir(parents=True, exist_ok=True)
    for name, texts in found.items():
        stream = encode(tokenizer, texts)
        stream.tofile(args.out / "tokens" / f"{name}.u16")
        print(f"{name:<24} {len(stream):>11,} tokens {sum(len(t.encode()) for t in texts) / len(stream):.2f} bytes each", flush=True)


if __name__ == "__main__":
    main()
