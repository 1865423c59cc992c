"""Writes vectors/*.json, small tokenizers of every supported kind with what Hugging Face's
tokenizers (0.23) make of a set of texts, and base_vectors.json, the same for assets/base. Needs `pip install tokenizers`.

    python tests/tokenizer/make_vectors.py
"""

import json
import pathlib
import random

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

HERE = pathlib.Path(__file__).parent / "vectors"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
SAMPLE = [
    "the cat sat on the mat, and the other cats said that they'd rather not.",
    "for (int i = 0; i < 10; ++i) {\n    total += values[i];\n}\n",
    "We've 1234567 reasons; they're all here:   \n\n\n  end",
    "Größe und Maß, naïve café, привет мир, 日本語 한국어 🙂🙂👩‍👩‍👧",
] * 4
TEXTS = [
    "", " ", "  ", "\n", "\t\n \r\n", "the cat sat", " the cat", "the  cat   sat    ", "The CAT'S",
    "they'd've'LL 'S'RE'T", "x=1234567890;", "3.14 33 333 3333", "\n\n\n  the\n \n the  \n",
    "cafe\u0301 caf\u00e9 na\u00efve", "a\u0323\u0307b a\u0307\u0323b", "\u1112\u1161\u11ab\ud55c",
    "\ub0d0\u11a7", "a\u1df6\u0345\u0301", "\u212b\u00c5 \u03a9\u2126", "привет, мир!", "日本語と한국어",
    "🙂👩\u200d👩\u200d👧 🇩🇪", "\u00a0the\u2003cat\u3000sat\u0085x", "a\u180eb \u180e c\u200bd",
    "٣٤٥ Ⅷ ½ ²", "\ufffd\u0000\u0001\x7f", "𓀀𝒳𐍈", "\U00031350\U0002ebf0\U00010d40",
    "<|end|>", "the<|end|>cat", " <|end|> ", "<|end|><|begin|>", "<|en d|>", "<|end|><|end|",
    "<think> the </think>", "a<think>b", "the <strip> cat", "<strip>\n<strip>", "x  <left>  <right>  y",
    "word wordy sword word", "word,word", "-word_word", "WORD e\u0301tude \u00e9tude",
    "<unk>", "<0x41>", "▁the▁cat", "'ſ 'K", "[the](cat)", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
]


def added(tok):
    """Tokens of every flag."""
    tok.add_special_tokens(["<|begin|>", "<|end|>"])
    tok.add_tokens([
        AddedToken("<think>", normalized=False),
        AddedToken("<strip>", lstrip=True, rstrip=True, normalized=False),
        AddedToken("<left>", lstrip=True), AddedToken("<right>", rstrip=True),
        AddedToken("word", single_word=True), AddedToken("étude", normalized=True),
    ])


def byte_level(pre, normalizer=None, ignore_merges=False, size=330, post=None):
    tok = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tok.pre_tokenizer = pre
    if normalizer is not None:
        tok.normalizer = normalizer
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(SAMPLE, trainers.BpeTrainer(
        vocab_size=size, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    added(tok)
    if post is not None:
        tok.post_processor = post(tok)
    return tok


def template(tok):
    return processors.TemplateProcessing(
        single="<|begin|> $A <|end|>",
        special_tokens=[(t, tok.token_to_id(t)) for t in ("<|begin|>", "<|end|>")])


def split(pattern, behavior="isolated", invert=False, regex=True):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern) if regex else pattern, behavior, invert),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def sentencepiece_like(pre=None, byte_fallback=True, fuse_unk=False):
    """As Llama 2's and Mistral's tokenizer.json."""
    bytes_ = [f"<0x{b:02X}>" for b in range(256)] if byte_fallback else []
    tok = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=byte_fallback, fuse_unk=fuse_unk))
    tok.pre_tokenizer = pre or pre_tokenizers.Metaspace(split=True)
    tok.train_from_iterator(SAMPLE[:3], trainers.BpeTrainer(
        vocab_size=len(bytes_) + 110, show_progress=False, special_tokens=["<unk>"] + bytes_))
    spec = json.loads(tok.to_str())
    spec["added_tokens"] = spec["added_tokens"][:1]
    if pre is None:
        spec["pre_tokenizer"] = None
        spec["normalizer"] = {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}
    steps = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}]
    if byte_fallback:
        steps.append({"type": "ByteFallback"})
    steps += [{"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    spec["decoder"] = {"type": "Sequence", "decoders": steps}
    tok = Tokenizer.from_str(json.dumps(spec))
    added(tok)
    return tok


def kinds():
    level = pre_tokenizers.ByteLevel
    yield "gpt2", byte_level(level(add_prefix_space=False), post=lambda t: processors.ByteLevel())
    yield "gpt2_prefix", byte_level(level(add_prefix_space=True))
    yield "llama3", byte_level(split(LLAMA3), ignore_merges=True, post=template)
    yield "llama3_sequence", byte_level(split(LLAMA3), post=lambda t: processors.Sequence(
        [processors.ByteLevel(trim_offsets=False), template(t)]))
    yield "qwen", byte_level(split(QWEN), normalizers.NFC())
    yield "qwen_sequence", byte_level(split(QWEN), normalizers.Sequence([normalizers.NFC()]))
    yield "digits", byte_level(pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), level(add_prefix_space=False)]))
    yield "digit_runs", byte_level(pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=False), level(add_prefix_space=False)]))
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next",
                     "contiguous"):
        for invert in (False, True):
            name = f"split_{behavior}{'_inverted' if invert else ''}"
            yield name, byte_level(split(r"\s|,", behavior, invert), size=280)
    yield "split_string", byte_level(split(" ", "merged_with_next", regex=False), size=290)
    yield "split_empty_matches", byte_level(split(r"\d*|(?=[a-z])"), size=280)
    yield "split_word", byte_level(split(r"\w+|\W|\p{Han}+"), size=290)
    yield "no_regex", byte_level(level(add_prefix_space=False, use_regex=False), size=300)
    yield "sentencepiece", sentencepiece_like()
    yield "metaspace_first", sentencepiece_like(
        pre_tokenizers.Metaspace(prepend_scheme="first", split=False))
    yield "metaspace_split", sentencepiece_like(pre_tokenizers.Metaspace(), byte_fallback=False)
    yield "unknown_fused", sentencepiece_like(
        pre_tokenizers.Metaspace(prepend_scheme="never"), byte_fallback=False, fuse_unk=True)


def make_case(tok, text):
    ids = tok.encode(text, add_special_tokens=False).ids
    case = {"text": text, "ids": ids, "decoded": tok.decode(ids, skip_special_tokens=False)}
    full = tok.encode(text).ids
    if full != ids:
        case["with_special"] = full
    tok.encode_special_tokens = True
    plain = tok.encode(text, add_special_tokens=False).ids
    tok.encode_special_tokens = False
    if plain != ids:
        case["plain"] = plain
    bare = tok.decode(full, skip_special_tokens=True)
    if bare != case["decoded"]:
        case["bare"] = bare
    return case


def write(path, document):
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    path.write_text(text + "\n", encoding="utf-8")


def main():
    HERE.mkdir(exist_ok=True)
    random.seed(1)
    for name, tok in kinds():
        cases = [make_case(tok, text) for text in TEXTS]
        if name.startswith(("gpt2", "llama3", "qwen", "sentencepiece", "metaspace_first")):
            for _ in range(20):
                ids = [random.randrange(tok.get_vocab_size()) for _ in range(12)]
                cases.append({"random": ids, "decoded": tok.decode(ids, skip_special_tokens=False),
                              "bare": tok.decode(ids, skip_special_tokens=True)})
        write(HERE / f"{name}.json", {"tokenizer": json.loads(tok.to_str()), "cases": cases})
    base = HERE.parents[2] / "assets" / "base" / "tokenizer.json"
    tok = Tokenizer.from_file(str(base))
    write(HERE.parent / "base_vectors.json", [make_case(tok, text) for text in TEXTS + SAMPLE[:4]])


if __name__ == "__main__":
    main()
