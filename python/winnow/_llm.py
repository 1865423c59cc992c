"""A loaded model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from . import _winnow
from ._results import Completion
from ._sampling import SamplingParams
from ._stream import Stream
from ._winnow import CacheMemory, Error, ModelInfo

Prompt: TypeAlias = str | Sequence[int] | NDArray[np.integer]
"""A text, or the ids of its tokens."""
Message: TypeAlias = Mapping[str, str]
"""{"role": "system", "user" or "assistant", "content": text}"""


class LLM:
    """A model with a compressed KV cache.

    Any number of threads may call one LLM; concurrent requests run as one batch. A forked process
    must not use it: use the "spawn" method of multiprocessing.

    model          a Hugging Face model directory
    context        longest text, for models whose RoPE depends on it (LongRoPE, dynamic); None:
                   the value in config.json
    probe          directory of a compression probe for a plain model; None: no probe
    probe_threshold  it evicts entries with a lower score; None: the probe's own
    device         "cpu", "cuda" or "cuda:N"
    cache          "auto" (what the checkpoint was trained for), "dense", "dms", "dmc", "streaming",
                   "tova", "h2o", "quest", "random", "snapkv", "rkv", "vatp", "pyramidkv",
                   "expected_attention", "triattention", "dms_quest" or "dms_budget"
    cr             compression ratio; all of these but the first four need it
    calibration    triattention: the file that `winnow calibrate` made
    window         of "dms", "dms_quest" and "dms_budget": instead of the checkpoint's
    kv_dtype       how entries are stored: "bf16", "fp8", "int8", "fp32", ...; None: as `dtype`
    kv_gib         most memory for entries; 0: nine tenths of what the weights leave
    host_gib       memory of the host for preempted sequences, which move there and back instead of
                   being computed again; 0: none
    weights        "auto" (as stored), "int8", "int4", or on cuda "fp8", made while loading
    dtype          of computation: "bf16" or "fp32"
    threads        0: one per core. One team serves all models of a process; the last load sets it
    chunk          most tokens per step; longer prompts are split; 0: 512, on cuda 8192
    deterministic  results do not depend on the rest of the batch, to the last bit

    Errors name the command line's flags, which have the same names.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        context: int | None = None,
        rope_yarn: float | None = None,
        probe: str | os.PathLike[str] | None = None,
        probe_threshold: float | None = None,
        device: str = "cpu",
        cache: str = "auto",
        cr: float | None = None,
        calibration: str | os.PathLike[str] | None = None,
        window: int | None = None,
        kv_dtype: str | None = None,
        kv_gib: float = 0.0,
        host_gib: float = 0.0,
        weights: str = "auto",
        dtype: str = "bf16",
        threads: int = 0,
        chunk: int = 0,
        deterministic: bool = False,
    ) -> None:
        options = _winnow.LoadOptions()
        options.model = os.fspath(model)
        options.context = context
        options.rope_yarn = rope_yarn
        options.probe = os.fspath(probe) if probe is not None else ""
        options.probe_threshold = probe_threshold
        options.device = device
        options.cache = cache
        options.cr = cr
        options.calibration = os.fspath(calibration) if calibration is not None else ""
        options.window = window
        options.kv_dtype = kv_dtype or ""
        options.kv_gib = kv_gib
        options.host_gib = host_gib
        options.weights = weights
        options.dtype = dtype
        options.threads = threads
        options.chunk = chunk
        options.deterministic = deterministic
        self._llm = _winnow.Llm.load(options)

    @property
    def info(self) -> ModelInfo:
        """The model, and the cache of this run."""
        return self._llm.info

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[Completion]:
        """Continues one prompt or many, in one batch.

        `params` is one for all or one per prompt. Returns the n continuations of the first prompt,
        then those of the second, and so on. Ctrl-C ends it.
        """
        return self._run([self._ids(prompt) for prompt in _as_list(prompts)], params)

    def chat(
        self, messages: Iterable[Message], params: SamplingParams | None = None
    ) -> list[Completion]:
        """The model's n answers to a conversation, with its chat template."""
        return self._run([self._ids(self.chat_prompt(messages))], params)

    def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> Stream:
        """Continues a prompt and yields chunks as they are generated."""
        return self._start(self._ids(prompt), params or SamplingParams(), 0)

    def logits(self, tokens: Prompt) -> NDArray[np.float32]:
        """The prediction after each of `tokens`, computed with the cache: [T, vocabulary]."""
        return self._llm.logits(self._ids(tokens))

    def live_entries(self, tokens: Prompt) -> NDArray[np.int32]:
        """The number of entries that the query of each of `tokens` saw: [T, layers, KV heads]."""
        return self._llm.live_entries(self._ids(tokens))

    def tokenize(self, text: str, *, add_special: bool = True) -> list[int]:
        """Token ids; with `add_special` including BOS and the like, if the model uses them."""
        return self._llm.tokenize(text, add_special)

    def detokenize(self, token_ids: Sequence[int] | NDArray[np.integer]) -> str:
        """The text of tokens, without special ones."""
        return self._llm.detokenize(_as_ids(token_ids))

    def render_chat(self, messages: Iterable[Message]) -> str:
        """The prompt for a conversation, from the chat template."""
        pairs = []
        for index, message in enumerate(messages):
            try:
                pairs.append((message["role"], message["content"]))
            except KeyError as missing:
                raise Error(f"message {index}: expected role and content, {missing} is missing")
        return self._llm.render_chat(pairs)

    def chat_prompt(self, messages: Iterable[Message]) -> list[int]:
        """`render_chat` as tokens: its template writes BOS itself."""
        return self.tokenize(self.render_chat(messages), add_special=False)

    def cache_memory(self) -> CacheMemory:
        """The current memory of all caches of this model: bytes, capacity, sequences."""
        return self._llm.cache_memory()

    def _run(
        self,
        prompts: Sequence[NDArray[np.int32]],
        params: SamplingParams | Sequence[SamplingParams] | None,
    ) -> list[Completion]:
        if params is None or isinstance(params, SamplingParams):
            params = [params or SamplingParams()] * len(prompts)
        if len(params) != len(prompts):
            raise Error(f"{len(params)} SamplingParams: expected one, or {len(prompts)} as prompts")
        with ExitStack() as stack:
            streams = [
                stack.enter_context(self._start(ids, each, index))
                for index, (ids, each) in enumerate(zip(prompts, params))
            ]
            return [completion for stream in streams for completion in stream.completions()]

    def _start(self, ids: NDArray[np.int32], params: SamplingParams, index: int) -> Stream:
        return Stream(self._llm.start(ids, params._options()), params, index)

    def _ids(self, prompt: Prompt) -> NDArray[np.int32]:
        return _as_ids(self.tokenize(prompt) if isinstance(prompt, str) else prompt)


def _as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, str) or (isinstance(prompts, np.ndarray) and prompts.ndim == 1):
        return [prompts]
    if len(prompts) > 0 and isinstance(prompts[0], (int, np.integer)):
        return [prompts]  # type: ignore[list-item]
    return list(prompts)


def _as_ids(token_ids: Sequence[int] | NDArray[np.integer]) -> NDArray[np.int32]:
    ids = np.asarray(token_ids)
    if ids.ndim != 1 or (ids.size > 0 and ids.dtype.kind not in "iu"):
        raise Error(f"token ids: expected a list of integers, found {token_ids!r:.60}")
    if ids.size > 0 and (ids.min() < 0 or ids.max() > np.iinfo(np.int32).max):
        raise Error(f"token ids: {ids.min()} to {ids.max()} are not within any vocabulary")
    return np.ascontiguousarray(ids, dtype=np.int32)
