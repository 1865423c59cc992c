"""The results of a request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _winnow


@dataclass(frozen=True)
class CacheStats:
    """What a sequence's cache held at its end."""

    live_entries: NDArray[np.int32]
    """Entries held, [layers, KV heads]."""
    bytes: int
    """Bytes allocated, including metadata."""
    dense_bytes: int
    """Bytes of a dense cache of this length and storage format."""
    compression_ratio: float
    """Length of a dense cache over the mean length of the stored one."""


@dataclass(frozen=True)
class Logprobs:
    """Natural log-probabilities of T tokens by the model's own distribution (temperature 1)."""

    token_ids: NDArray[np.int32]
    """The tokens, [T]."""
    logprobs: NDArray[np.float32]
    """Their log-probabilities, [T]."""
    top_token_ids: NDArray[np.int32]
    """The most likely tokens at each position, [T, alternatives], best first."""
    top_logprobs: NDArray[np.float32]
    """Their log-probabilities, [T, alternatives]."""

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True)
class Completion:
    """One continuation of one prompt."""

    text: str
    token_ids: list[int] = field(repr=False)
    """All generated tokens, including an end-of-text token."""
    finish_reason: str
    """stop, length, cancelled, out_of_memory or not_numbers (logits are not finite)."""
    kv: CacheStats = field(repr=False)
    prompt_index: int = 0
    """Index of its prompt."""
    sample: int = 0
    """Index among the n continuations of its prompt."""
    prompt_tokens: int = 0
    logprobs: Logprobs | None = field(default=None, repr=False)
    """Of token_ids, if requested."""
    prompt_logprobs: Logprobs | None = field(default=None, repr=False)
    """Of the prompt's tokens except the first, if requested."""


class Chunk(NamedTuple):
    """The output of one token of a stream."""

    text: str
    """Text that is final; may be empty."""
    token_id: int | None
    """None: no new token, only text held back until the end."""
    sample: int


def completions_of(
    result: _winnow.Generation, prompt_index: int, *, logprobs: bool, prompt_logprobs: bool
) -> list[Completion]:
    of_prompt = Logprobs(*result.prompt_logprobs()) if prompt_logprobs else None
    return [
        Completion(
            text=sample.text,
            token_ids=sample.token_ids,
            finish_reason=sample.finish_reason,
            kv=CacheStats(
                sample.kv.live_entries(),
                sample.kv.bytes,
                sample.kv.dense_bytes,
                sample.kv.compression_ratio,
            ),
            prompt_index=prompt_index,
            sample=index,
            prompt_tokens=result.prompt_tokens,
            logprobs=Logprobs(*sample.logprobs()) if logprobs else None,
            prompt_logprobs=of_prompt,
        )
        for index, sample in enumerate(result.samples)
    ]
