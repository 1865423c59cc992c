"""Writes training windows (pieces.py) as training data of winnow, on all cores.

    python windows.py --work WORK --gsm8k gsm8k.train.jsonl --tokens 190000000 --out mix/

Each worker reads its own part of every source from beginning to end, again and again, so all text is seen
equally often within a source. Lengths differ: most documents that a model meets are shorter than its
context. To the problems of tasks.py come register programs (reasoning.py).
"""

import argparse
import json
import multiprocessing
import sys
from pathlib import Path
from random import Random

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import reasoning
from corpus import gsm8k_problems
from pieces import Encoder, Piece, WindowSource

LENGTHS = {8192: 0.35, 4096: 0.40, 2048: 0.25}  # tokens of a window, and their shares of all tokens
SPARE = 16  # words at the ends of a part may come out longer when it is tokenised by itself
PROGRAMS = 0.4  # of the problems
# How often a source is read, relative to others: general prose matters most, C++ pages are many and alike.
REPEATS = {"docs": 0.9, "packages-docs": 0.9, "packages-encyclopedia": 1.3, "packages-prose": 1.3, "prose": 1.6, "textbooks": 1.6}


class Reader:
    """A stream from its beginning to its end, again and again."""

    def __init__(self, stream: np.ndarray):
        self.stream, self.position = stream, 0

    def next(self, size: int) -> np.ndarray:
        if self.position + size > len(self.stream):
            self.position = 0
        self.position += size
        return self.stream[self.position - size : self.position]


class Windows(WindowSource):
    """Worker `index` of `workers`."""

    def __init__(self, work: Path, gsm8k: Path, index: int, workers: int, seed: int):
        self.rng = Random(f"{seed} {index}")
        self.encoder = Encoder(work / "shape/tokenizer.json")
        self.readers, self.source_weights = [], []
        for path in sorted((work / "tokens").glob("*.u16")):
            part = np.array_split(np.fromfile(path, dtype="<u2"), workers)[index]
            self.readers.append(Reader(part))
            self.source_weights.append(len(part) * REPEATS.get(path.stem, 1.0))
        self.school = list(gsm8k_problems(gsm8k))
        self.sizes = list(LENGTHS)
        self.size_weights = [share / size for size, share in LENGTHS.items()]

    def slice(self, size: int) -> np.ndarray:
        return self.rng.choices(self.readers, self.source_weights)[0].next(size)

    def draw(self, mix) -> Piece:
        """A window; `mix` = shares of (text, recall, problems)."""
        self.length = self.rng.choices(self.sizes, self.size_weights)[0] - SPARE
        piece = self.rng.choices([self.text, self.recall, self.problems], mix)[0]()
        return Piece(piece.ids[: self.length + 1], piece.weights[: self.length + 1])

    def problems(self) -> Piece:
        return self.programs() if self.rng.random() < PROGRAMS else super().problems()

    def programs(self) -> Piece:
        """Chats with a register program each, until the window has no room for the next."""
        encoder, whole = self.encoder, Piece([], [])
        while (room := self.length - len(whole.ids)) > 2 * reasoning.SHORTEST:
            drawn = reasoning.problem(self.rng, longest=min(reasoning.LONGEST, room))
            asked = [encoder.bos, encoder.user, *encoder(drawn.question), encoder.assistant]
            answered = [*encoder(drawn.solution), encoder.eos]
            if len(asked) + len(answered) > room:
                break
            whole.ids += asked + answered
            whole.weights += [reasoning.QUESTION_WEIGHT] * len(asked) + [1.0] * len(answered)
        return whole


def parts(encoder: Encoder, piece: Piece) -> list[dict]:
    """Runs of tokens of equal weight as texts; the first token, which winnow adds, left out."""
    weights = np.array(piece.weights[1:])
    starts = [0, *(np.flatnonzero(np.diff(weights)) + 1).tolist(), len(weights)]
    ids = piece.ids[1:]
    texts = encoder.tokenizer.decode_batch([ids[a:b] for a, b in zip(starts, starts[1:])], skip_special_tokens=False)
    return [{"text": text, "weight": float(weights[start])} for text, start in zip(texts, starts)]


def write(args: argparse.Namespace, index: int) -> int:
    source = Windows(args.work, args.gsm8k, index, args.jobs, args.seed)
    written = 0
    with open(args.out / f"mix-{index:02}.jsonl", "w", encoding="utf-8") as out:
        while written < args.tokens // args.jobs:
            piece = source.draw(args.mix)
            if len(piece.ids) < 2:
                continue
            out.write(json.dumps({"parts": parts(source.encoder, piece)}, ensure_ascii=False) + "\n")
            written += len(piece.ids)
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="what tokens.py made")
    parser.add_argument("--gsm8k", type=Path, required=True)
    parser.add_argument("--mix", type=float, nargs=3, default=(0.46, 0.34, 0.20), help="shares of text, recall, problems")
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()

    args.out.mkdir(parents=True, exist_ok=True)
    with multiprocessing.Pool(args.jobs) as pool:
        written = pool.starmap(write, [(args, index) for index in range(args.jobs)])
    print(f"{sum(written):,} tokens")


if __name__ == "__main__":
    main()
