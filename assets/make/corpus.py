"""Reads the text corpus and turns it into one token stream per source.

    python corpus.py --corpus DIR --eval DIR --tokenizer tokenizer/tokenizer.json --out tokens/

A stream is the concatenation of `<|begin_of_text|> document <|end_of_text|>`, as uint16.
"""

import argparse
import io
import json
import random
import re
from pathlib import Path
from typing import Iterator

import numpy as np

from tasks import Problem

SOURCES = ["docs", "prose", "rfcs", "code", "textbooks"]


def documents(path: Path) -> Iterator[str]:
    import zstandard

    with open(path, "rb") as raw:
        reader = zstandard.ZstdDecompressor().stream_reader(raw)
        for line in io.TextIOWrapper(reader, encoding="utf-8"):
            yield json.loads(line)["text"]


def gsm8k_problems(path: Path) -> Iterator[Problem]:
    """GSM8K with the calculator annotations removed and the answer as a sentence."""
    for line in path.read_text().splitlines():
        row = json.loads(line)
        steps, _, result = row["answer"].rpartition("####")
        steps = re.sub(r"<<.*?>>", "", steps).strip()
        yield Problem(row["question"], f"{steps}\nThe answer is {result.strip()}.", result.strip())


def encode(tokenizer, texts) -> np.ndarray:
    bos, eos = tokenizer.token_to_id("<|begin_of_text|>"), tokenizer.token_to_id("<|end_of_text|>")
    ids: list[int] = []
    for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False):
        ids += [bos, *encoding.ids, eos]
    return np.array(ids, dtype=np.uint16)


def main() -> None:
    from tokenizers import Tokenizer

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--eval", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()

    tokenizer = Tokenizer.from_file(str(args.tokenizer))
    args.out.mkdir(parents=True, exist_ok=True)
    for split in ("train", "valid"):
        streams = {}
        for source in SOURCES:
            texts = list(documents(args.corpus / f"{source}.{split}.jsonl.zst"))
            random.Random(0).shuffle(texts)
            streams[source] = encode(tokenizer, texts)
            size = sum(len(text.encode()) for text in texts)
            print(f"{split} {source}: {len(streams[source])} tokens, {size} bytes")
        np.savez_compressed(args.out / f"{split}.npz", **streams)
    held_out = {
        "wikitext2": encode(tokenizer, [(args.eval / "wikitext2.test.txt").read_text()]),
        "essays": encode(tokenizer, [(args.eval / "essays.txt").read_text()]),
    }
    np.savez_compressed(args.out / "eval.npz", **held_out)
    for name, stream in held_out.items():
        print(f"eval {name}: {len(stream)} tokens")


if __name__ == "__main__":
    main()
