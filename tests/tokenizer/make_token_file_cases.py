"""Writes token_file_cases.json: what transformers (5.24) makes of tokens that stand in the files beside a
tokenizer.json. Needs `pip install transformers`.

    python tests/tokenizer/make_token_file_cases.py
"""

import json
import pathlib
import random
import tempfile

from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).parent
NAMES = ["<a>", "<b>", "<c>", "<d>", "ab", "<unk>"]
KEYS = ["bos_token", "eos_token", "unk_token", "pad_token", "mask_token", "image_token"]
TEXTS = ["<a>ab<b>", "x <c> y<d>", "<a> <b>\n<c>  <d>ab", "<a><a>z<unk>ab <d>", "b<c>,c"]


def base(rng):
    vocab = {c: i for i, c in enumerate(sorted(ByteLevel.alphabet()))}
    vocab["ab"] = len(vocab)
    added = [token(rng, name) for name in NAMES if rng.random() < 0.3]
    for i, entry in enumerate(added):
        entry["id"] = vocab.get(entry["content"], len(vocab) + i)
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": level, "post_processor": None, "decoder": level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": vocab, "merges": [["a", "b"]]}}


def token(rng, name):
    flags = {flag: rng.random() < 0.25 for flag in ("single_word", "lstrip", "rstrip", "normalized")}
    return {"content": name, **flags, "special": rng.random() < 0.5}


def named(rng, marked):
    entry = token(rng, rng.choice(NAMES))
    entry.pop("special")
    return rng.choice([rng.choice(NAMES), {**({"__type": "AddedToken"} if marked else {}), **entry}])


def files(rng):
    config, out = {}, {}
    if rng.random() < 0.4:
        config["added_tokens_decoder"] = {
            str(300 - i): token(rng, name) for i, name in enumerate(NAMES) if rng.random() < 0.6}
    for key in KEYS:
        if rng.random() < 0.25:
            config[key] = rng.choice(NAMES) if key == "image_token" else named(rng, marked=True)
    kind = rng.random()
    if kind < 0.2:
        config["extra_special_tokens"] = rng.sample(NAMES, 2)
    elif kind < 0.4:
        config["additional_special_tokens"] = rng.sample(NAMES, 2)
    elif kind < 0.5:
        config["extra_special_tokens"] = {"video_token": rng.choice(NAMES)}
    if rng.random() < 0.9:
        out["tokenizer_config.json"] = config
    if rng.random() < 0.4:
        out["special_tokens_map.json"] = {key: named(rng, marked=False) for key in KEYS[:5] if rng.random() < 0.3}
        if rng.random() < 0.3:
            out["special_tokens_map.json"]["additional_special_tokens"] = rng.sample(NAMES, 2)
    if rng.random() < 0.4:
        out["added_tokens.json"] = {name: 300 + i for i, name in enumerate(NAMES) if rng.random() < 0.4}
    return out


def make_case(seed):
    rng = random.Random(seed)
    tokenizer, beside = base(rng), files(rng)
    with tempfile.TemporaryDirectory() as directory:
        for name, value in {"tokenizer.json": tokenizer, **beside}.items():
            (pathlib.Path(directory) / name).write_text(json.dumps(value))
        loaded = PreTrainedTokenizerFast.from_pretrained(directory)
        ids = [loaded.encode(text, add_special_tokens=False) for text in TEXTS]
        bare = [loaded.decode(i, skip_special_tokens=True) for i in ids]
    return {"added_tokens": tokenizer["added_tokens"], "files": beside, "ids": ids, "bare": bare}


def main():
    tokenizer = base(random.Random(0))
    tokenizer["added_tokens"] = []
    cases, failures = [], 0
    for seed in range(120):
        try:
            cases.append(make_case(seed))
        except Exception as error:
            failures += 1
            print(seed, type(error).__name__, str(error)[:100])
    document = {"tokenizer": tokenizer, "texts": TEXTS, "cases": cases}
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    (HERE / "token_file_cases.json").write_text(text + "\n", encoding="utf-8")
    print(len(cases), "cases,", failures, "that transformers refuses")


if __name__ == "__main__":
    main()
