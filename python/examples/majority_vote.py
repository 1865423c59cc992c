"""Hyper-scaling: for the memory of one dense chain, several compressed ones that vote.

    python majority_vote.py MODEL "A question?" --chains 16 [--cache dense]

The chains share the cache of the question. What each ends with is its vote: the last number of its
text. DMS paper (Lancucki et al. 2025), section 2.
"""

import argparse
import re
from collections import Counter

import winnow


def last_number(text: str) -> str | None:
    numbers = re.findall(r"-?\d+(?:\.\d+)?", text.replace(",", ""))
    return numbers[-1] if numbers else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("question")
    parser.add_argument("--chains", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--cache", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plain", action="store_true", help="without the chat template")
    arguments = parser.parse_args()

    llm = winnow.LLM(arguments.model, cache=arguments.cache)
    params = winnow.SamplingParams(
        max_tokens=arguments.max_tokens,
        temperature=arguments.temperature,
        n=arguments.chains,
        seed=arguments.seed,
    )
    if arguments.plain:
        chains = llm.generate(arguments.question, params)
    else:
        chains = llm.chat([{"role": "user", "content": arguments.question}], params)

    votes = Counter(answer for answer in (last_number(chain.text) for chain in chains) if answer)
    for answer, count in votes.most_common():
        print(f"{count:4} of {len(chains)}  {answer}")
    entries = sum(int(chain.kv.live_entries.sum()) for chain in chains)
    dense = sum(chain.kv.live_entries.sum() * chain.kv.compression_ratio for chain in chains)
    print(f"entries held by all chains: {entries}; by dense ones: {dense:.0f}")


if __name__ == "__main__":
    main()
