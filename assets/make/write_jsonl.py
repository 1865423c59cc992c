"""Writes windows (pieces.py) as training data of winnow: one JSON object per line, whose "parts" carry
the weights.

    python write_jsonl.py --data tokens/ --tokenizer tokenizer.json --gsm8k gsm8k.train.jsonl \\
        --mix 0.5 0.36 0.14 --windows 4000 --out mix.jsonl.zst
"""

import argparse
import itertools
import json
from pathlib import Path

import zstandard

from pieces import Piece, WindowSource


def parts(source: WindowSource, piece: Piece) -> list[dict]:
    """Runs of tokens of equal weight as texts; the first token, which winnow adds, left out."""
    result = []
    tokens = zip(piece.ids[1:], piece.weights[1:])
    for weight, run in itertools.groupby(tokens, key=lambda token: token[1]):
        text = source.encoder.decode([id for id, _ in run])
        result.append({"text": text} if weight == 1.0 else {"text": text, "weight": weight})
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="what corpus.py made")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--gsm8k", type=Path, required=True)
    parser.add_argument("--mix", type=float, nargs=3, default=(0.5, 0.36, 0.14), help="shares of text, recall, problems")
    parser.add_argument("--windows", type=int, required=True)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()

    # Texts at the ends of a window are cut in the middle; a few tokens less leave room for words that
    # come out longer when the parts are tokenised one by one.
    source = WindowSource(args.data / "train.npz", args.tokenizer, args.gsm8k, args.length - 16, args.seed)
    with zstandard.open(args.out, "wt", encoding="utf-8", cctx=zstandard.ZstdCompressor(level=12)) as out:
        for _ in range(args.windows):
            out.write(json.dumps({"parts": parts(source, source.draw(args.mix))}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
