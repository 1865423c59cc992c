"""Length of the answer, and how to choose the next token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from . import _winnow
from ._winnow import Error


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """Parameters of one prompt. winnow checks the values when the request starts."""

    max_tokens: int = 128
    """Most new tokens; 0 to compute only `prompt_logprobs`."""
    temperature: float = 0.0
    """0: always the most likely token."""
    top_k: int = 0
    """Only the k most likely tokens; 0: all."""
    top_p: float = 1.0
    """Only the smallest set of tokens with at least this probability."""
    min_p: float = 0.0
    """Only tokens at least this fraction as likely as the most likely one."""
    repetition_penalty: float = 1.0
    """Divides positive logits of tokens seen in prompt or answer."""
    frequency_penalty: float = 0.0
    """Subtracted from a logit for each occurrence of the token in the answer."""
    presence_penalty: float = 0.0
    """Subtracted from a logit once if the answer has the token."""
    seed: int = 0
    """The same seed gives the same text."""
    n: int = 1
    """Continuations of the prompt; they share its cache."""
    stop: str | Sequence[str] = ()
    """The text ends before the first of these."""
    ignore_eos: bool = False
    """Continue past the checkpoint's end-of-text tokens."""
    logprobs: int | None = None
    """Return log-probabilities, and those of this many alternatives per token."""
    prompt_logprobs: bool = False
    """Return them for the prompt's tokens too; needs `logprobs`."""

    def _options(self) -> _winnow.GenerateOptions:
        if not 0 <= self.seed < 2**64:
            raise Error(f"seed {self.seed}: expected 0 to 2**64 - 1")
        if self.logprobs is not None and self.logprobs < 0:
            raise Error(f"logprobs {self.logprobs}: expected None, or 0 or more alternatives")
        options = _winnow.GenerateOptions()
        options.max_tokens = self.max_tokens
        options.samples = self.n
        options.logprobs = -1 if self.logprobs is None else self.logprobs
        options.prompt_logprobs = self.prompt_logprobs
        options.stop = [self.stop] if isinstance(self.stop, str) else list(self.stop)
        options.ignore_eos = self.ignore_eos
        sampling = _winnow.SamplingOptions()
        sampling.temperature = self.temperature
        sampling.top_k = self.top_k
        sampling.top_p = self.top_p
        sampling.min_p = self.min_p
        sampling.repetition_penalty = self.repetition_penalty
        sampling.frequency_penalty = self.frequency_penalty
        sampling.presence_penalty = self.presence_penalty
        sampling.seed = self.seed
        options.sampling = sampling
        return options
