"""Which heads keep what: live entries per layer and KV head along a text.

    python live_entries.py MODEL TEXT.txt [--tokens N] [--plot heads.svg]

Prints the entries that each head holds at the end; with matplotlib, --plot draws how they grow.
"""

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import winnow


def plot(live: NDArray[np.int32], file: Path) -> None:
    import matplotlib.pyplot as plt

    tokens, layers, heads = live.shape
    figure, (growth, held) = plt.subplots(1, 2, figsize=(11, 4))
    growth.plot(live.reshape(tokens, -1), linewidth=0.8)
    growth.plot(np.arange(1, tokens + 1), "k--", label="dense")
    growth.set(xlabel="tokens", ylabel="live entries of a head")
    growth.legend()
    image = held.imshow(live[-1].T / tokens, vmin=0, vmax=1, aspect="auto")
    held.set(xlabel="layer", ylabel="KV head", title="share of the tokens that is held")
    figure.colorbar(image)
    figure.tight_layout()
    figure.savefig(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("text", type=Path)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()

    llm = winnow.LLM(arguments.model)
    tokens = llm.tokenize(arguments.text.read_text())[: arguments.tokens]
    live = llm.live_entries(tokens)
    for layer, heads in enumerate(live[-1]):
        print(f"layer {layer:2}  " + "  ".join(f"{entries:6}" for entries in heads))
    print(f"{len(tokens)} tokens, {len(tokens) / live[-1].mean():.2f}x fewer entries than dense")
    if arguments.plot:
        plot(live, arguments.plot)


if __name__ == "__main__":
    main()
