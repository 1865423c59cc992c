"""A running request."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from types import TracebackType

from . import _winnow
from ._results import Chunk, Completion, completions_of
from ._sampling import SamplingParams


class Stream(Iterator[Chunk]):
    """Chunks of text as they come; made by `LLM.stream`.

    No thread stands behind it: the model works while somebody waits for a chunk, and then for all
    streams and calls of the same LLM together. A stream that is closed, left by `with`, or no longer
    referred to is cancelled, and its cache is free at once. It keeps the model loaded.
    """

    def __init__(self, stream: _winnow.Stream, params: SamplingParams, prompt_index: int = 0):
        self._stream = stream
        self._params = params
        self._prompt_index = prompt_index
        self._chunks: deque[Chunk] = deque()
        self._completions: list[Completion] | None = None

    def __next__(self) -> Chunk:
        while not self._chunks:
            if not self._stream.advance():
                raise StopIteration
            self._chunks.extend(
                Chunk(piece.text, piece.token if piece.token >= 0 else None, piece.sample)
                for piece in self._stream.take()
            )
        return self._chunks.popleft()

    def completions(self) -> list[Completion]:
        """The n whole continuations; waits for their end. After `close`, what exists so far."""
        if self._completions is None:
            while self._stream.advance():
                self._stream.take()
            self._completions = completions_of(
                self._stream.finish(),
                self._prompt_index,
                logprobs=self._params.logprobs is not None,
                prompt_logprobs=self._params.prompt_logprobs,
            )
        return self._completions

    def close(self) -> None:
        """Ends the request; chunks generated before can still be read."""
        self._stream.cancel()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
