"""LLM inference with a KV cache that learns what to keep.

    import winnow

    llm = winnow.LLM("models/llama-3.2-1b-dms-8x")
    for chunk in llm.stream("Once upon a time"):
        print(chunk.text, end="", flush=True)

Errors that you can mend raise `winnow.Error`, with one line that says what is wrong and where.
"""

from importlib.metadata import PackageNotFoundError, version

from ._llm import LLM, Message, Prompt
from ._results import CacheStats, Chunk, Completion, Logprobs
from ._sampling import SamplingParams
from ._stream import Stream
from ._winnow import CacheMemory, Error, ModelInfo

Error.__module__ = __name__

try:
    __version__ = version("winnow")
except PackageNotFoundError:  # used from a build folder
    __version__ = "0"

__all__ = [
    "LLM",
    "CacheMemory",
    "CacheStats",
    "Chunk",
    "Completion",
    "Error",
    "Logprobs",
    "Message",
    "ModelInfo",
    "Prompt",
    "SamplingParams",
    "Stream",
]
