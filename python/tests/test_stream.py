"""Streams: read, dropped, interleaved, from many threads, interrupted."""

import gc
import signal
import subprocess
import sys
import threading
import time

import pytest
from conftest import DMS

import winnow
from winnow import SamplingParams

PROMPT = "It was a dark and stormy night, and the captain of the ship"
PARAMS = SamplingParams(max_tokens=16, ignore_eos=True)
LONG = SamplingParams(max_tokens=3000, ignore_eos=True)


def test_chunks_are_the_text(llm):
    stream = llm.stream(PROMPT, SamplingParams(max_tokens=16, n=2, temperature=1.0, ignore_eos=True))
    texts, ids = ["", ""], [[], []]
    for chunk in stream:
        texts[chunk.sample] += chunk.text
        if chunk.token_id is not None:
            ids[chunk.sample].append(chunk.token_id)
    assert [(each.text, each.token_ids) for each in stream.completions()] == list(zip(texts, ids))
    assert stream.completions() is stream.completions()
    with pytest.raises(StopIteration):
        next(stream)


def test_a_dropped_stream_frees_its_cache(llm):
    stream = llm.stream(PROMPT, LONG)
    next(stream)
    assert llm.cache_memory().bytes > 0
    del stream
    gc.collect()
    assert llm.cache_memory().bytes == 0
    with llm.stream(PROMPT, LONG) as stream:
        for _, chunk in zip(range(4), stream):
            pass
    assert llm.cache_memory().bytes == 0
    (answer,) = stream.completions()
    assert answer.finish_reason == "cancelled" and len(answer.token_ids) >= 4


def test_streams_interleave(llm):
    alone = [llm.generate(prompt, PARAMS)[0].text for prompt in (PROMPT, "The sea")]
    first, second = llm.stream(PROMPT, PARAMS), llm.stream("The sea", PARAMS)
    pairs = list(zip(first, second))
    assert "".join(a.text for a, _ in pairs) + "".join(c.text for c in first) == alone[0]
    assert second.completions()[0].text == alone[1]


def test_a_stream_keeps_its_model():
    llm = winnow.LLM(DMS, threads=2)
    stream = llm.stream(PROMPT, PARAMS)
    del llm
    gc.collect()
    assert len(stream.completions()[0].token_ids) == 16


def test_threads_share_one_model(llm):
    expected = llm.generate(PROMPT, PARAMS)[0].token_ids
    tokens = llm.tokenize(PROMPT)
    logits = llm.logits(tokens)
    wrong = []

    def work(kind: int) -> None:
        for _ in range(3):
            if kind == 0:
                wrong.extend([] if (llm.logits(tokens) == logits).all() else ["logits"])
            elif kind == 1:
                next(llm.stream(PROMPT, LONG))
            elif llm.generate(PROMPT, PARAMS)[0].token_ids != expected:
                wrong.append("tokens")

    threads = [threading.Thread(target=work, args=(kind,)) for kind in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert wrong == [] and not any(thread.is_alive() for thread in threads)
    gc.collect()
    assert llm.cache_memory().bytes == 0


def test_python_runs_while_the_model_works(llm):
    done = threading.Event()
    worker = threading.Thread(target=lambda: (llm.generate([PROMPT] * 8, LONG_BATCH), done.set()))
    worker.start()
    ticks = 0
    while not done.is_set():
        time.sleep(0.005)
        ticks += 1
    worker.join()
    assert ticks > 5


LONG_BATCH = SamplingParams(max_tokens=100, ignore_eos=True)

# A shell that runs the tests in the background has them ignore the signal.
INTERRUPTED = """
import signal, sys, winnow
signal.signal(signal.SIGINT, signal.default_int_handler)
llm = winnow.LLM(sys.argv[1], threads=1)
prompt = llm.tokenize("The captain of the ship looked at the sea. " * 300)[:3500]
print("ready", flush=True)
try:
    {call}
except KeyboardInterrupt:
    print("interrupted", llm.cache_memory().bytes, flush=True)
    assert len(llm.generate("And", winnow.SamplingParams(max_tokens=2))[0].token_ids) == 2
"""


@pytest.mark.parametrize(
    "call",
    [
        "while True: llm.generate([prompt[:40]] * 4, winnow.SamplingParams(max_tokens=3000))",
        "while True: llm.logits(prompt)",
    ],
    ids=["generate", "logits"],
)
def test_control_c_ends_it(call):
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED.format(call=call), str(DMS)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    output, _ = child.communicate(timeout=60)
    assert output == "interrupted 0\n"
    assert child.returncode == 0
