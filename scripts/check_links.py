#!/usr/bin/env python3
"""Checks that every relative link in the Markdown files that git knows leads to a file or folder of
the clone and, after a '#', to a heading in it. Does not follow links to other sites. Also checks that
the navigation in mkdocs.yml lists every page of docs/.

    python3 scripts/check_links.py    prints FILE:LINE: LINK: what is wrong; exits with 1 if any is
"""

import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

LINK = re.compile(r"\]\(\s*<?([^()\s<>]+(?:\([^()\s]*\)[^()\s<>]*)*)>?(?:\s+\"[^\"]*\")?\s*\)")
REFERENCE = re.compile(r"^ {0,3}\[[^\]^]+\]:\s*<?([^\s<>]+)>?")
HTML = re.compile(r"<(?:a|img|source)\b[^>]*?\b(?:href|src|srcset)=\"([^\"\s]+)\"")
HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.*?)\s*#*\s*$")
FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")


def text_lines(path: Path):
    """(number, line) of all lines outside fenced code."""
    fence = ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        mark = FENCE.match(line)
        if fence:
            closes = mark and mark[1].startswith(fence) and not line.strip().strip(fence[0])
            fence = "" if closes else fence
        elif mark:
            fence = mark[1]
        else:
            yield number, line


def anchor_of(heading: str) -> str:
    """The anchor that GitHub derives from a heading."""
    shown = re.sub(r"\]\([^)]*\)", "", heading)
    return re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")


@cache
def anchors(path: Path) -> frozenset[str]:
    seen: Counter[str] = Counter()
    found = set()
    for _, line in text_lines(path):
        if heading := HEADING.match(line):
            anchor = anchor_of(heading[1])
            found.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
            seen[anchor] += 1
        found.update(re.findall(r"<a\s+(?:id|name)=\"([^\"]+)\"", line))
    return frozenset(found)


def links(path: Path):
    for number, line in text_lines(path):
        prose = CODE.sub("", line)
        for pattern in (LINK, REFERENCE, HTML):
            for target in pattern.findall(prose):
                yield number, target


def problem(path: Path, target: str) -> str | None:
    if re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:|//", target):
        return None
    name, _, anchor = target.partition("#")
    to = Path(os.path.normpath(path.parent / name)) if name else path
    if to.parts[:1] == ("..",) or to.is_absolute():
        return "leads out of the clone"
    if not to.exists():
        return "does not exist"
    if anchor and to.suffix == ".md" and anchor not in anchors(to):
        return f"{to} has no heading of that name"
    return None


def unlisted_pages(files: list[Path]) -> list[Path]:
    navigation = Path("mkdocs.yml").read_text(encoding="utf-8")
    pages = [path for path in files if path.parts[0] == "docs"]
    return [p for p in pages if not re.search(rf" {re.escape(str(p.relative_to('docs')))}$", navigation, re.M)]


def main() -> int:
    os.chdir(Path(__file__).resolve().parent.parent)
    known = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.md"]
    names = subprocess.run(known, check=True, capture_output=True, text=True).stdout
    files = sorted({Path(name) for name in names.split("\0") if name and Path(name).exists()})
    checked = broken = 0
    for path in files:
        for line, target in links(path):
            checked += 1
            if wrong := problem(path, target):
                broken += 1
                print(f"{path}:{line}: {target}: {wrong}")
    for path in unlisted_pages(files):
        broken += 1
        print(f"{path}: the navigation in mkdocs.yml does not list it")
    print(f"links: {checked} in {len(files)} files, {broken or 'none'} broken")
    return 1 if broken or not files else 0


if __name__ == "__main__":
    sys.exit(main())
