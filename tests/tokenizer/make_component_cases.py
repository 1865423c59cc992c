"""Writes component_cases.json: what the parts of Hugging Face's tokenizers (0.23) make of texts, one by
one: regular expressions, pre-tokenizers, normalizers, decoders, models. Needs `pip install tokenizers`.

    python tests/tokenizer/make_component_cases.py
"""

import base64
import json
import pathlib
import struct
import unicodedata

from tokenizers import Regex, Tokenizer, pre_tokenizers

from make_vectors import LLAMA3, QWEN, TEXTS

HERE = pathlib.Path(__file__).parent
MORE = [
    "1234567 89", "abc123DEF xyz", "aAbB\nccDD\r\n\r\nx", "straße STRASSE ſs ﬁ fi", "İi ıI", "a-b_c.d!e?f",
    "foo bar  baz\tqux", "$5.00 + €3 = £2 <tag> `x` ~^|", "a\u0301e\u0308 👩\u200d👧 \r\n", "don't CAN'T I'LL we'Re",
    "0x1F 0b10 deadBEEF", "　全角　ＡＢＣ１２３ｶﾅ", "¡Hola! ¿Qué? «x» “y” ‘z’ …", "a\u2028b\u0085c\x0bd\x0ce", "aaa bbb aaa",
    "ﬃ ㎏ ① ½ ﷺ ㋿", "\U0001ccd6\U0001e030\u0378", "Ἀἁ ΣΑΣ σας", "\u0958\u0930\u094d ก็ ำ", "   lead and trail   ",
]
ALL = TEXTS + MORE

PATTERNS = [
    # What models have: PCRE2 must run these.
    LLAMA3, QWEN,
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[一-龥ࠀ-一가-퟿]+", r"\s?[A-Za-zµÀ-ÖØ-öø-ƺ]+", r"\d{1,3}(?=(?:\d{3})*\b)", r"[\r\n]", r" ?\w+|\W",
    r"\p{Han}+|\p{Hiragana}+|\P{L}", r"\p{^L}+", r"\D+|\S", r"[^\d\s]+", r"a*?b|c+?|d??", r"a++|\d*+x", r"(?<=a)b|(?<!a)c",
    r"[-a]|[b-]|[c\-d]", r"\x41|\x{301}|\u00e9|\t", r"(?>a|ab)c?", r"^a|a$|^$", r"\Aa|x\z|\Z",
    # What the two libraries read differently.
    r"\p{N}{1,3}+", r"a{2}+", r"[a-z]{2,}+", r"\d{,2}", r"a{,1}b", r"\d{2}?", r"a{0}?", r"x{a}", r"a{", r"a{1,2}{2}",
    r"(?m:a.b|c.)", r"(?m).+", r"(?i)strasse|fi", r"(?i)ß", r"a(?i)b|c", r"x(?i)a|B(?-i)c|d", r"(?i:[k-s])+", r"(?i:ss)",
    r"[[:alpha:]]+", r"[[:^space:]]+", r"[[:punct:]]", r"[[:digit:][:upper:]]+", r"[[:word:]]+|[[:xdigit:]]",
    r"\p{Alnum}+", r"\p{Punct}", r"\p{Alpha}+", r"\p{Space}", r"\p{Upper}+|\p{lower}", r"\p{XDigit}+", r"\p{Word}+", r"\p{Any}",
    r"\p{letter}+", r"\p{Uppercase_Letter}", r"\p{Greek}+", r"\p{Cn}", r"\p{Emoji}",
    r"\h+", r"\H+", r"[\h_]+", r"[a-z&&[^aeiou]]+", r"[a-c[x-z]]+", r"[^a-c[x-z]]+", r"[\w&&[^\d]]+", r"[^\W\d]+", r"[\W]+",
    r"\b\w", r"\B.", r"\R", r"\X", r"\v", r"\O", r"\N+", r"(a)\1", r"(?<x>a|b)\k<x>", r"(?:ab)+", r"(a|b)*c", r"(\s|x)*", r"(?:a*)*",
    r"(?<=a|bc)d|(?<=\s)b", r"(?~b)", r"a(?#comment)b", r"(?x: a b ) ", r"\Qa\E", r"(?!)", r"(?=a)*b", r"[\]a]+",
    r"\d{1,}", r"\G\w", r"[\u4e00-\u9fa5]+", r"[\x{4e00}-\x{9fa5}]+", r"\xe4\xb8\x96", r"\cA|\C-b|\0|\07",
    r"[ -~&&[^a-z]]+", r"(?i)[a-z]+", r"(?i:[^a])+", r"\p{L}{3}", r"[\p{L}&&\p{Lu}]+", r"\p{L}(?i:x)*", r"\s(?i)\w|é",
]

PRE_TOKENIZERS = [
    {"type": "Punctuation"}, {"type": "Punctuation", "behavior": "Contiguous"}, {"type": "Punctuation", "behavior": "Removed"},
    {"type": "Punctuation", "behavior": "MergedWithPrevious"}, {"type": "Whitespace"}, {"type": "WhitespaceSplit"},
    {"type": "BertPreTokenizer"}, {"type": "CharDelimiterSplit", "delimiter": "b"}, {"type": "FixedLength", "length": 3},
    {"type": "UnicodeScripts"},
    {"type": "Sequence", "pretokenizers": [{"type": "UnicodeScripts"},
                                           {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}]},
    {"type": "Sequence", "pretokenizers": [{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}, {"type": "Whitespace"},
                                           {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"}]},
    {"type": "Digits", "individual_digits": True}, {"type": "Digits", "individual_digits": False},
    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
    {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first", "split": False},
    {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True},
    {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Punctuation"},
                                           {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}]},
    {"type": "Sequence", "pretokenizers": [
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]},
    {"type": "Sequence", "pretokenizers": [
        {"type": "Punctuation", "behavior": "Contiguous"},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        {"type": "Digits", "individual_digits": False},
        {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated", "invert": False}]},
]


def charsmap(mapping):
    """A SentencePiece table: a double-array trie, and the strings that its leaves name."""
    strings, places = b"", {}
    for key, value in mapping.items():
        places[key.encode()] = len(strings)
        strings += value.encode() + b"\0"
    units = [0] * 512  # a unit leads to 256 children; the root's are the second block

    def fill(prefix, node, children):
        leaf = prefix in places
        units[node] |= (children ^ node) << 10 | (0x100 if leaf else 0)
        if leaf:
            units[children] = 0x80000000 | places[prefix]
        longer = (key for key in places if key.startswith(prefix) and len(key) > len(prefix))
        for byte in sorted({key[len(prefix)] for key in longer}):
            units[children ^ byte] = byte
            units.extend([0] * 256)
            fill(prefix + bytes([byte]), children ^ byte, len(units) - 256)

    fill(b"", 0, 256)
    trie = struct.pack(f"<{len(units)}I", *units)
    return base64.b64encode(struct.pack("<I", len(trie)) + trie + strings).decode()


NORMALIZERS = [
    {"type": "NFC"}, {"type": "NFD"}, {"type": "NFKC"}, {"type": "NFKD"}, {"type": "Lowercase"}, {"type": "StripAccents"},
    {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "Strip", "strip_left": False, "strip_right": True},
    {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
    {"type": "BertNormalizer", "clean_text": False, "handle_chinese_chars": False, "strip_accents": True, "lowercase": False},
    {"type": "Nmt"}, {"type": "ByteLevel"}, {"type": "Prepend", "prepend": "▁"},
    {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "}, {"type": "Replace", "pattern": {"Regex": "a*"}, "content": "-"},
    {"type": "Replace", "pattern": {"Regex": "[aeiou]{2,3}+|\\h"}, "content": ""},
    {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"},
                                         {"type": "Replace", "pattern": {"String": "the"}, "content": "<the>"}]},
    {"type": "Precompiled", "precompiled_charsmap": charsmap({"ａ": "a", "A": "a", "e\u0301": "é", "ﬃ": "ffi", "\t": " ", "世": ""})},
]

TOKENS = ["▁▁a", "▁b", "c", "##d", ".", "<0xE4>", "<0xB8>", "<0x96>", "<0xFF>", "▁", "▁x▁", "n't", "Ġe", "é"]
SEQUENCES = [[0, 1, 2, 3, 4], [9, 0, 1], [2, 2, 3, 3, 11, 4], [5, 6, 7, 1], [5, 8, 6, 2], [9], [9, 9, 1], [8], [10, 10], [12, 13], []]
SENTENCEPIECE = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
                 {"type": "Strip", "content": " ", "start": 1, "stop": 0}]
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
DECODERS = [
    None, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Sequence", "decoders": SENTENCEPIECE},
    {"type": "Sequence", "decoders": SENTENCEPIECE[:3]}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
    {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"}, {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True},
    {"type": "WordPiece", "prefix": "##", "cleanup": True}, {"type": "WordPiece", "prefix": "##", "cleanup": False},
    {"type": "Replace", "pattern": {"Regex": "▁+"}, "content": " "}, {"type": "Strip", "content": "▁", "start": 1, "stop": 0},
    {"type": "BPEDecoder", "suffix": "a"}, {"type": "BPEDecoder", "suffix": "▁"},
    {"type": "CTC", "pad_token": "c", "word_delimiter_token": "▁", "cleanup": True},
    {"type": "CTC", "pad_token": ".", "word_delimiter_token": "▁", "cleanup": False},
    {"type": "Sequence", "decoders": [{"type": "WordPiece", "prefix": "##", "cleanup": True}, {"type": "BPEDecoder", "suffix": "."}]},
    BYTE_LEVEL, {"type": "Sequence", "decoders": [BYTE_LEVEL, {"type": "Fuse"}]},
    {"type": "Sequence", "decoders": [{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}, {"type": "Fuse"}]},
    {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}]},
]


def spec(**parts):
    base = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
            "pre_tokenizer": None, "post_processor": None, "decoder": None,
            "model": {"type": "WordLevel", "vocab": {token: i for i, token in enumerate(TOKENS)}, "unk_token": "c"}}
    return {**base, **parts}


def load(**parts):
    return Tokenizer.from_str(json.dumps(spec(**parts)))


def pieces(pre_tokenizer, text):
    return [piece for piece, _ in pre_tokenizer.pre_tokenize_str(text)]


def newer_script(pre_tokenizer, text):
    """Whether a character is younger than the library's table of scripts, which is of Unicode 9 or so."""
    return "UnicodeScripts" in json.dumps(pre_tokenizer) and bool(set(text) & set("\u1df6\u32ff"))


BYTES = [[f"<0x{b:02X}>", -8.0] for b in range(256)]
UNIGRAM = [["<unk>", 0.0], ["▁", -2.0], ["t", -3.0], ["h", -3.5], ["e", -3.2], ["th", -3.0], ["the", -3.9], ["▁the", -4.0],
           ["▁c", -4.5], ["at", -3.3], ["▁cat", -6.0], ["a", -4.0], ["aa", -7.5], ["世", -5.0], ["x", -5.0]]
MODELS = [
    {"type": "Unigram", "unk_id": 0, "vocab": UNIGRAM, "byte_fallback": False},
    {"type": "Unigram", "unk_id": 0, "vocab": UNIGRAM + BYTES, "byte_fallback": True},
    {"type": "WordLevel", "vocab": {"the": 0, "cat": 1, "<unk>": 2, "sat": 5}, "unk_token": "<unk>"},
    {"type": "WordPiece", "vocab": {"the": 0, "c": 1, "##a": 2, "##at": 3, "##t": 4, "[UNK]": 5, "世": 6, "##b": 7, "a": 8, "##aa": 9},
     "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 6},
    {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3, "<unk>": 4}, "merges": ["#version: 0.2", "a b"], "unk_token": "<unk>"},
    {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3, "<unk>": 4}, "merges": ["a b"], "unk_token": "<unk>", "fuse_unk": True},
    # Marks on parts of words; unknown characters that tokens of bytes overtake.
    {"type": "BPE", "vocab": {"a": 0, "b": 1, "##b": 2, "<s>": 3, "</s>": 4, "ab": 5, "##b</w>": 6, "ab</w>": 7, "a</w>": 8, "##a": 9, "<unk>": 10},
     "merges": ["a ##b", "a ##b</w>"], "unk_token": "<unk>", "continuing_subword_prefix": "##", "end_of_word_suffix": "</w>"},
    {"type": "BPE", "vocab": {"a": 0, "<unk>": 1, "<0xC3>": 2, "<0xA9>": 3, "<0xE4>": 4, "<0xB8>": 5, "<0x96>": 6, "b": 7}, "merges": [],
     "unk_token": "<unk>", "byte_fallback": True},
    {"type": "BPE", "vocab": {"a": 0, "<unk>": 1, "<0xC3>": 2, "<0xA9>": 3, "<0xE4>": 4, "<0xB8>": 5, "<0x96>": 6, "b": 7}, "merges": [],
     "unk_token": "<unk>", "byte_fallback": True, "fuse_unk": True},
]

# A text's beginning, which Metaspace's "first" asks for, as normalizers leave it.
LETTERS = {"type": "BPE", "vocab": {c: i for i, c in enumerate(["<unk>", "▁", "_", "a", "e", "l", "t", "d"])}, "merges": [], "unk_token": "<unk>"}
FIRST = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}
ORIGINS = [
    {"type": "Strip", "strip_left": True, "strip_right": False}, {"type": "Prepend", "prepend": "_"}, {"type": "NFKD"}, {"type": "StripAccents"},
    {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "}, {"type": "Replace", "pattern": {"String": "a"}, "content": ""},
    {"type": "Replace", "pattern": {"Regex": "^.."}, "content": "_"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}, {"type": "Lowercase"},
    {"type": "Sequence", "normalizers": [{"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "Prepend", "prepend": "_"}]},
]


def post(kind):
    return {"type": kind, "sep": ["</s>", 3], "cls": ["<s>", 4], "trim_offsets": True, "add_prefix_space": False}


ADDED = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True, "special": True}


def main():
    document = {"texts": ALL, "tokens": TOKENS, "sequences": SEQUENCES}
    document["regexes"] = []
    known = [text for text in ALL if all(unicodedata.category(c) != "Cn" for c in text)]  # of Unicode 14
    document["known_texts"] = known
    for pattern in PATTERNS:
        try:
            split = pre_tokenizers.Split(Regex(pattern), "isolated")
        except Exception as error:
            document["regexes"].append({"pattern": pattern, "error": str(error)})
            continue
        document["regexes"].append({"pattern": pattern, "pieces": [pieces(split, text) for text in known]})
    document["pre_tokenizers"] = [
        {"spec": s, "pieces": [None if newer_script(s, text) else pieces(load(pre_tokenizer=s).pre_tokenizer, text) for text in known]}
        for s in PRE_TOKENIZERS]
    document["normalizers"] = [
        {"spec": s, "texts": [load(normalizer=s).normalizer.normalize_str(text) for text in ALL]} for s in NORMALIZERS]
    document["decoders"] = [
        {"spec": s, "texts": [load(decoder=s).decode(ids, skip_special_tokens=False) for ids in SEQUENCES]} for s in DECODERS]
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    document["models"] = []
    for model in MODELS:
        pre = {"type": "WhitespaceSplit"} if model["type"].startswith("Word") else metaspace if model["type"] == "Unigram" else None
        tok = load(model=model, pre_tokenizer=pre, post_processor=post("RobertaProcessing" if pre else "BertProcessing"))
        document["models"].append({"model": model, "pre_tokenizer": pre, "post_processor": json.loads(tok.to_str())["post_processor"],
                                   "ids": [tok.encode(text).ids for text in ALL]})
    document["origins"] = [
        {"normalizer": s, "model": LETTERS, "pre_tokenizer": FIRST,
         "ids": [load(model=LETTERS, normalizer=s, pre_tokenizer=FIRST).encode(text).ids for text in ALL]} for s in ORIGINS]
    document["skipped"] = {"tokens": [dict(ADDED, id=14, content="[M]"), dict(ADDED, id=15, content="[m]n", normalized=False)]}
    skipped = load(normalizer={"type": "Lowercase"}, added_tokens=document["skipped"]["tokens"], decoder={"type": "Fuse"})
    document["skipped"]["text"] = skipped.decode([14, 15, 2], skip_special_tokens=True)
    for entry in document["regexes"]:
        if "error" in entry:
            print(entry)
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    (HERE / "component_cases.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
