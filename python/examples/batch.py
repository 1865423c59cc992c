"""Continues every line of a file in one batch, and says what the cache of each took.

    python batch.py MODEL PROMPTS.txt [--max-tokens N] [--kv-dtype fp8]
"""

import argparse
import json
import sys
import time
from pathlib import Path

import winnow


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("prompts", type=Path, help="one prompt per line")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--kv-dtype", help="how entries are stored: fp8, int8, ...")
    arguments = parser.parse_args()

    llm = winnow.LLM(arguments.model, kv_dtype=arguments.kv_dtype)
    prompts = [line for line in arguments.prompts.read_text().splitlines() if line]
    start = time.perf_counter()
    answers = llm.generate(prompts, winnow.SamplingParams(max_tokens=arguments.max_tokens))
    seconds = time.perf_counter() - start

    for prompt, answer in zip(prompts, answers):
        print(json.dumps({"prompt": prompt, "text": answer.text, "kv_bytes": answer.kv.bytes}))
    tokens = sum(len(answer.token_ids) for answer in answers)
    held = sum(answer.kv.bytes for answer in answers)
    dense = sum(answer.kv.dense_bytes for answer in answers)
    print(
        f"{len(answers)} answers, {tokens / seconds:.0f} tokens/s, {held / 2**20:.2f} MiB of cache "
        f"where a dense one has {dense / 2**20:.2f} MiB",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
