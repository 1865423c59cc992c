"""Trains the byte-level BPE vocabulary and writes the tokenizer files of a model directory.

    python tokenizer.py --corpus DIR --gsm8k gsm8k.train.jsonl --out tokenizer/
"""

import argparse
import json
import random
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

import tasks
from corpus import SOURCES, documents, gsm8k_problems

VOCAB_SIZE = 8192
BOS, EOS, USER, ASSISTANT = "<|begin_of_text|>", "<|end_of_text|>", "<|user|>", "<|assistant|>"
SPECIALS = [BOS, EOS, USER, ASSISTANT]

# The pre-tokenizer of Qwen 2: Llama 3's with one digit per token, which suits arithmetic.
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}<|assistant|>{{ message['content'] }}{{ eos_token }}"
    "{% else %}<|user|>{{ message['content'] }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def training_text(corpus: Path, gsm8k: Path, max_bytes_per_source: int):
    """At most `max_bytes_per_source` of every source, so that no source dictates the vocabulary."""
    rng = random.Random(0)
    for source in SOURCES:
        texts = list(documents(corpus / f"{source}.train.jsonl.zst"))
        rng.shuffle(texts)
        budget = max_bytes_per_source
        for text in texts:
            if budget <= 0:
                break
            yield text[:budget]
            budget -= len(text)
    for problem in gsm8k_problems(gsm8k):
        yield f"{problem.question}\n{problem.answer}"
    for _ in range(5000):
        problem = tasks.problem(rng)
        yield f"{problem.question}\n{problem.answer}"
        secret = tasks.fact(rng)
        yield "\n".join(secret.sentences + [text for qa in secret.questions for text in qa])


def train(texts, vocab_size: int = VOCAB_SIZE) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A",
        pair=f"{BOS} $A {BOS} $B:1",
        special_tokens=[(BOS, tokenizer.token_to_id(BOS))],
    )
    return tokenizer


def save(tokenizer: Tokenizer, out: Path, context: int = 4096) -> None:
    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(out / "tokenizer.json"), pretty=False)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "additional_special_tokens": [USER, ASSISTANT],
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "model_max_length": context,
    }
    (out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--gsm8k", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--max-bytes-per-source", type=int, default=12_000_000)
    args = parser.parse_args()
    save(train(training_text(args.corpus, args.gsm8k, args.max_bytes_per_source)), args.out)


if __name__ == "__main__":
    main()
