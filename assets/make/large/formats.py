"""Readers of the files in packages: each takes a file's bytes and yields documents of plain text."""

import gzip
import html
import re
import zlib
from typing import Iterator

# HTML ----------------------------------------------------------------------------------------------

INVISIBLE = re.compile(r"<!--.*?-->|<(script|style|nav|head|header|footer|form|svg)\b.*?</\1\s*>", re.S | re.I)
PREFORMATTED = re.compile(r"(<pre\b.*?</pre\s*>)", re.S | re.I)
BLOCK_END = re.compile(r"</(?:p|h\d|li|div|tr|dt|dd|table|section|blockquote|title|item)\s*>|<(?:br|hr)\b[^>]*>", re.I)
TAG = re.compile(r"<[^>]+>")


def without_tags(markup: str) -> str:
    return html.unescape(TAG.sub("", markup))


def from_html(data: bytes) -> Iterator[str]:
    """Running text paragraph by paragraph; preformatted text as it is."""
    markup = INVISIBLE.sub(" ", data.decode("utf-8", "replace"))
    blocks = []
    for part in PREFORMATTED.split(markup):
        if part[:4].lower() == "<pre":
            blocks.append(without_tags(part).strip("\n"))
        else:
            lines = BLOCK_END.sub("\0", part).split("\0")
            blocks += [" ".join(without_tags(line).split()) for line in lines]
    yield "\n\n".join(block for block in blocks if block.strip())


# Dictionaries --------------------------------------------------------------------------------------

ENTRIES_PER_DOCUMENT = 40
SOURCE_MARK = re.compile(r"\s*\[(?:1913 Webster|PJC|WordNet|Webster 1913 Suppl\.)[^\]]*\]")


def grouped(entries: list[str]) -> Iterator[str]:
    for start in range(0, len(entries), ENTRIES_PER_DOCUMENT):
        yield "\n\n".join(entries[start : start + ENTRIES_PER_DOCUMENT])


def from_dict(data: bytes) -> Iterator[str]:
    """dictd's format: an entry begins at the margin, its text is indented; {braces} are links."""
    text = SOURCE_MARK.sub("", gzip.decompress(data).decode("utf-8", "replace"))
    text = text.replace("{", "").replace("}", "")
    entries = re.split(r"\n(?=\S)", text)
    paragraphs = ([" ".join(p.split()) for p in re.split(r"\n\s*\n", entry)] for entry in entries)
    joined = (" ".join(p for p in entry if p) for entry in paragraphs)
    yield from grouped([entry for entry in joined if len(entry) > 40 and not entry.startswith("00")])


def from_wordnet(data: bytes) -> Iterator[str]:
    """One line for each sense: its words, and its meaning after a bar."""
    entries = []
    for line in data.decode("utf-8", "replace").splitlines():
        if line.startswith(" ") or "|" not in line:
            continue
        fields, meaning = line.split("|", 1)
        fields = fields.split()
        count = int(fields[3], 16)
        words = [word.replace("_", " ") for word in fields[4 : 4 + 2 * count : 2]]
        entries.append(f"{', '.join(words)}: {meaning.strip()}.")
    yield from grouped(entries)


# Books and games -----------------------------------------------------------------------------------

ZLIB = b"\x78\x9c"  # how a stream begins


def zlib_streams(data: bytes) -> Iterator[bytes]:
    """Whatever can be decompressed; other bytes may stand between."""
    start = data.find(ZLIB)
    while start >= 0:
        stream = zlib.decompressobj()
        try:
            yield stream.decompress(data[start:])
            start = data.find(ZLIB, len(data) - len(stream.unused_data))
        except zlib.error:
            start = data.find(ZLIB, start + 1)


def from_sword(data: bytes) -> Iterator[str]:
    """zlib streams, with OSIS markup."""
    text = [plain.decode("utf-8", "replace") for plain in zlib_streams(data)]
    markup = re.sub(r"<note\b.*?</note>|<title\b[^>]*type=\"(?:page|x-)[^>]*>.*?</title>", "", "".join(text), flags=re.S)
    markup = re.sub(r"\s+", " ", markup)
    markup = re.sub(r"</?(?:p|div|lg|l|chapter|list|item|title)\b[^>]*>", "\n\n", markup)
    blocks = [" ".join(block.split()) for block in without_tags(markup).split("\n\n")]
    blocks = [block for block in blocks if block]
    for start in range(0, len(blocks), 60):
        yield "\n\n".join(blocks[start : start + 60])


def from_rdata(data: bytes) -> Iterator[str]:
    """Strings of R objects: zlib streams with their lengths before them; a string is a type word, its
    length and its bytes. The strings are lines of a book, an empty one ends a paragraph."""
    for plain in zlib_streams(data):
        lines = []
        for match in re.finditer(rb"\x00[\x04\x00]\x00\x09(....)", plain, re.S):
            size = int.from_bytes(match[1], "big")
            if size < 200:
                lines.append(plain[match.end() : match.end() + size].decode("utf-8", "replace"))
        if len(lines) > 1000:
            paragraphs = re.split(r"\n\s*\n", "\n".join(lines))
            blocks = [" ".join(p.split()) for p in paragraphs]
            for first in range(0, len(blocks), 80):
                yield "\n\n".join(blocks[first : first + 80])


def from_quoted(data: bytes) -> Iterator[str]:
    """The texts between backquotes, or those marked for translation."""
    text = data.decode("utf-8", "replace")
    quoted = re.findall(r"`([^`\n]{20,})`", text) or re.findall(r'_\("((?:[^"\\]|\\.|\\\n)*)"\)', text)
    blocks = [" ".join(q.replace("\\n", "\n").replace("\\\n", "").replace("\\", "").split()) for q in quoted]
    yield "\n\n".join(blocks)


# Plain text ----------------------------------------------------------------------------------------


def from_pod(data: bytes) -> Iterator[str]:
    text = data.decode("utf-8", "replace")
    for _ in range(2):
        text = re.sub(r"\b[BCFILSXE]<+\s?([^<>]*?)\s?>+", r"\1", text)
    text = re.sub(r"^=(?:head\d|item)\s+", "", text, flags=re.M)
    yield re.sub(r"^=\w+.*\n?", "", text, flags=re.M)


def from_text(data: bytes) -> Iterator[str]:
    yield re.sub(r"^%%%%$", "", data.decode("utf-8", "replace"), flags=re.M)


READERS = {
    "html": from_html,
    "dict": from_dict,
    "wordnet": from_wordnet,
    "sword": from_sword,
    "rdata": from_rdata,
    "quoted": from_quoted,
    "pod": from_pod,
    "text": from_text,
}
