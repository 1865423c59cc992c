"""Makes text from Debian packages (sources.tsv): one JSONL file for each class, and what it is made of.

    python packages.py --held-out DIR ... --work WORK --out text/

Needs apt-get and dpkg-deb of Debian 12. Paragraphs that occur a second time, or in a held-out file, are
left out. `sources.json` says version, licence and size of every package.
"""

import argparse
import csv
import gzip
import hashlib
import json
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Iterator

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from corpus import documents
from formats import READERS

SHORTEST_DOCUMENT = 400  # characters
SHORTEST_UNIQUE = 60  # paragraphs below may repeat: headings, single words
LONGEST_LINE = 20_000


def download(names: list[str], work: Path) -> None:
    """Packages as work/NAME_VERSION_ARCH.deb; those that are there stay."""
    missing = [name for name in names if not list(work.glob(f"{name}_*.deb"))]
    if missing:
        work.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", "-q", *missing], cwd=work, check=True)


def unpack(name: str, work: Path) -> tuple[Path, str]:
    """The package's folder and its version."""
    package = next(work.glob(f"{name}_*.deb"))
    folder = work / "unpacked" / name
    if not folder.exists():
        folder.mkdir(parents=True)
        subprocess.run(["dpkg-deb", "-x", str(package), str(folder)], check=True)
    version = subprocess.run(
        ["dpkg-deb", "-f", str(package), "Version"], check=True, capture_output=True, text=True
    )
    return folder, version.stdout.strip()


def fingerprint(paragraph: str) -> bytes:
    return hashlib.blake2b(" ".join(paragraph.split()).encode(), digest_size=8).digest()


class Unique:
    """Drops paragraphs seen before."""

    def __init__(self):
        self.seen: set[bytes] = set()

    def note(self, text: str) -> None:
        self.seen.update(fingerprint(p) for p in text.split("\n\n") if len(p) >= SHORTEST_UNIQUE)

    def __call__(self, text: str) -> str:
        kept = []
        for paragraph in text.split("\n\n"):
            if len(paragraph) >= SHORTEST_UNIQUE:
                mark = fingerprint(paragraph)
                if mark in self.seen:
                    continue
                self.seen.add(mark)
            kept.append(paragraph)
        return "\n\n".join(kept)


def is_english(text: str) -> bool:
    """Mostly ASCII, some letters, no endless lines."""
    letters = sum(c.isalpha() for c in text[:4000])
    return (
        text.isascii() or len(text.encode()) < 1.05 * len(text)
    ) and letters > 0.45 * min(len(text), 4000) and max(map(len, text.split("\n"))) < LONGEST_LINE


def read(path: Path, reader) -> Iterator[str]:
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    for text in reader(data):
        yield re.sub(r"\n{3,}", "\n\n", text.replace("\r", "")).strip()


def package_documents(row: dict, folder: Path, unique: Unique) -> Iterator[str]:
    paths = sorted(p for p in folder.glob(row["files"]) if p.is_file())
    random.Random(0).shuffle(paths)
    room = float(row["most MB"]) * 1e6
    for path in paths:
        for text in read(path, READERS[row["format"]]):
            text = unique(text) if is_english(text or "-") else ""
            if len(text) >= SHORTEST_DOCUMENT and room > 0:
                room -= len(text.encode())
                yield text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--held-out", type=Path, nargs="+", required=True, help=".jsonl.zst and .txt: not to be trained on")
    parser.add_argument("--work", type=Path, required=True, help="keeps the packages")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()

    unique = Unique()
    for path in args.held_out:
        for text in documents(path) if path.suffix == ".zst" else [path.read_text()]:
            unique.note(text)

    with open(Path(__file__).with_name("sources.tsv"), newline="") as table:
        rows = list(csv.DictReader(table, delimiter="\t"))
    download([row["package"] for row in rows], args.work)
    args.out.mkdir(parents=True, exist_ok=True)
    outputs = {c: open(args.out / f"{c}.jsonl", "w", encoding="utf-8") for c in {row["class"] for row in rows}}
    made = []
    for row in rows:
        folder, version = unpack(row["package"], args.work)
        texts = list(package_documents(row, folder, unique))
        for text in texts:
            print(json.dumps({"text": text}, ensure_ascii=False), file=outputs[row["class"]])
        size = sum(len(text.encode()) for text in texts)
        made.append({"package": row["package"], "version": version, "licence": row["licence"],
                     "class": row["class"], "documents": len(texts), "bytes": size})
        print(f"{row['package']:<26} {version:<28} {len(texts):>6} documents {size / 1e6:>6.2f} MB", flush=True)
    for output in outputs.values():
        output.close()
    (args.out / "sources.json").write_text(json.dumps(made, indent=1) + "\n")
    print(f"{sum(m['bytes'] for m in made) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
