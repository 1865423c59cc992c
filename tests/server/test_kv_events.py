"""KV events, read by what vLLM 0.33 reads its own with: vllm/distributed/kv_events.py."""
import contextlib
import subprocess
import time
from typing import Any

import msgspec
import pytest
import zmq
from conftest import BINARY, ROOT, serving
from test_http import post
from test_lora import write_adapter

run = subprocess.run([BINARY, "serve", "--model", "assets/dms-cr8", "--kv-events", "ipc:///no/such/place"], cwd=ROOT,
                     capture_output=True, text=True, timeout=60)
pytestmark = pytest.mark.skipif("has no ZeroMQ" in run.stderr, reason="no ZeroMQ in this build")
BLOCK = 16
WORDS = "The old lighthouse keeper counted the ships that passed in the night. " * 4


class EventBatch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    ts: float
    events: list[Any]
    data_parallel_rank: int | None = None


class KVCacheEvent(msgspec.Struct, omit_defaults=True, gc=False, tag=True):
    pass


class BlockStored(KVCacheEvent):
    block_hashes: list[bytes | int]
    parent_block_hash: bytes | int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[Any, ...] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None


class BlockRemoved(KVCacheEvent):
    block_hashes: list[bytes | int]
    medium: str | None
    group_idx: int | None = None


class AllBlocksCleared(KVCacheEvent):
    pass


class KVEventBatch(EventBatch):
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]


# As vLLM up to 0.23 has them: by position.
class OldEvent(msgspec.Struct, array_like=True, omit_defaults=True, gc=False, tag=True):
    pass


class OldStored(OldEvent, tag="BlockStored"):
    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None


class OldRemoved(OldEvent, tag="BlockRemoved"):
    block_hashes: list[int]
    medium: str | None


class OldCleared(OldEvent, tag="AllBlocksCleared"):
    pass


class OldBatch(EventBatch):
    events: list[OldStored | OldRemoved | OldCleared]


class Router:
    """What a router knows of a server's cache."""

    def __init__(self, endpoint, kind=KVEventBatch, topic=""):
        self.decoder = msgspec.msgpack.Decoder(type=kind)
        self.socket = zmq.Context.instance().socket(zmq.SUB)
        self.socket.connect(endpoint)
        self.socket.setsockopt_string(zmq.SUBSCRIBE, topic)
        self.topic = topic.encode()
        self.next = None  # the number of the next batch
        self.blocks = {}  # by hash: the tokens up to a block's end, and the adapter
        self.events = []

    def close(self):
        self.socket.close(linger=0)

    def receive(self, seconds=60.0):
        """Takes the next batch; False if none comes."""
        if not self.socket.poll(seconds * 1000):
            return False
        topic, number, payload = self.socket.recv_multipart()
        assert topic == self.topic and len(number) == 8
        number = int.from_bytes(number, "big")
        assert self.next in (None, number), "a batch is missing"
        self.next = number + 1
        self.take(payload)
        return True

    def take(self, payload):
        batch = self.decoder.decode(payload)
        assert abs(batch.ts - time.time()) < 3600 and batch.data_parallel_rank == 0
        for event in batch.events:
            self.events.append(event)
            if isinstance(event, (BlockStored, OldStored)):
                self.store(event)
            elif isinstance(event, (BlockRemoved, OldRemoved)):
                for block in event.block_hashes:
                    del self.blocks[block]
            else:
                self.blocks.clear()

    def store(self, event):
        assert event.block_size == BLOCK and event.medium == "GPU"
        assert len(event.token_ids) == BLOCK * len(event.block_hashes)
        tokens = () if event.parent_block_hash is None else self.blocks[event.parent_block_hash][0]
        for i, block in enumerate(event.block_hashes):
            assert block not in self.blocks
            tokens += tuple(event.token_ids[i * BLOCK:(i + 1) * BLOCK])
            self.blocks[block] = tokens, getattr(event, "lora_name", None)

    def knows(self, tokens, adapter=None):
        """How many tokens of a prompt it believes the server to have."""
        known = {blocks for blocks, name in self.blocks.values() if name == adapter}
        ends = range(0, len(tokens) + 1, BLOCK)
        return max(end for end in ends if not end or tuple(tokens[:end]) in known)

    def wait_for(self, condition):
        while not condition():
            assert self.receive(), (self.events, self.blocks)


@contextlib.contextmanager
def routed(tmp_path, *flags, kind=KVEventBatch, topic=""):
    endpoint = f"ipc://{tmp_path}/events"
    with serving("--kv-events", endpoint, "--kv-events-replay", f"ipc://{tmp_path}/replay",
                 "--kv-events-topic", topic, *flags) as server:
        router = Router(endpoint, kind, topic)
        time.sleep(0.3)  # a subscriber joins late, as always
        try:
            yield server, router
        finally:
            router.close()


def ask(server, prompt, **fields):
    """The tokens whose state the server has kept, and how many of the prompt's it has found."""
    tokens = prompt
    if isinstance(prompt, str):
        tokens = post(server, {"prompt": prompt}, "/tokenize").json()["tokens"]
    answer = post(server, {"prompt": tokens, "max_tokens": 6, "ignore_eos": True,
                           "return_token_ids": True} | fields)
    assert answer.status_code == 200, answer.text
    answer = answer.json()
    kept = tokens + answer["choices"][0]["token_ids"][:-1]  # the last token went through no pass
    return kept, answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def whole_blocks(tokens):
    return len(tokens) // BLOCK * BLOCK


@pytest.mark.parametrize("flags, kind", [((), KVEventBatch),
                                         (("--kv-events-format", "arrays"), OldBatch)])
def test_a_router_knows_what_can_be_taken_up(tmp_path, flags, kind):
    with routed(tmp_path, *flags, kind=kind, topic="kv@pod@dms-cr8") as (server, router):
        tokens, cached = ask(server, WORDS)
        assert cached == 0 and len(tokens) > 2 * BLOCK
        router.wait_for(lambda: router.knows(tokens) == whole_blocks(tokens))
        longer, cached = ask(server, tokens + tokens[:BLOCK])
        assert cached == len(tokens), "what it was told is there"
        router.wait_for(lambda: router.knows(longer) == whole_blocks(longer))
        other, _ = ask(server, "Something else entirely: " + WORDS)
        router.wait_for(lambda: router.knows(other) == whole_blocks(other))
        assert router.knows(longer) == whole_blocks(longer)
        server.stop()
        router.wait_for(lambda: not router.blocks)


def test_what_is_dropped_is_removed(tmp_path):
    """A cache of few states: whatever the router still knows of a prompt, the server has."""
    with routed(tmp_path, "--prefix-cache-gib", "0.002") as (server, router):
        prompts = [f"Story number {i}. " + WORDS for i in range(12)]
        asked = [ask(server, prompt)[0] for prompt in prompts]
        router.wait_for(lambda: any(isinstance(e, BlockRemoved) for e in router.events))
        while router.receive(0.5):
            pass
        known = [router.knows(tokens) for tokens in asked]
        assert min(known) == 0 and max(known) > 2 * BLOCK
        latest = known.index(max(known))
        _, cached = ask(server, asked[latest] + asked[latest][:3])
        assert cached >= known[latest]


def test_adapters_have_prefixes_of_their_own(tmp_path):
    legal = write_adapter(tmp_path / "legal", 0.02)
    with routed(tmp_path, "--lora", f"legal={legal}") as (server, router):
        tokens, _ = ask(server, WORDS, model="legal")
        router.wait_for(lambda: router.knows(tokens, "legal") >= 2 * BLOCK)
        assert router.knows(tokens) == 0


@pytest.mark.parametrize("flags, frames", [((), 3), (("--kv-events-format", "arrays"), 2)])
def test_batches_can_be_asked_for_again(tmp_path, flags, frames):
    with routed(tmp_path, *flags, kind=OldBatch if flags else KVEventBatch) as (server, router):
        tokens, _ = ask(server, WORDS)
        router.wait_for(lambda: router.knows(tokens) >= 2 * BLOCK)
        late = Router(f"ipc://{tmp_path}/events", OldBatch if flags else KVEventBatch)
        replay = zmq.Context.instance().socket(zmq.DEALER)
        replay.connect(f"ipc://{tmp_path}/replay")
        for first in (0, 1):
            replay.send_multipart((b"", first.to_bytes(8, "big")))
            numbers = []
            while True:
                assert replay.poll(5000)
                empty, *rest = replay.recv_multipart()
                assert empty == b"" and len(rest) == frames
                *_, number, payload = rest
                if number == (-1).to_bytes(8, "big", signed=True):
                    assert payload == b""
                    break
                numbers.append(int.from_bytes(number, "big"))
                late.take(payload)
            assert numbers[0] == first and numbers == list(range(first, numbers[-1] + 1))
            if first == 0:
                assert late.blocks == router.blocks
                late.blocks.clear()
        late.close()
        replay.close(linger=0)


@pytest.mark.parametrize("flags, error", [
    (("--kv-events", "nonsense"), "--kv-events nonsense: expected tcp://HOST:PORT"),
    (("--kv-events", "ipc:///no/such/place"), "--kv-events ipc:///no/such/place: "),
    (("--kv-events", "tcp://*:5557", "--kv-events-format", "json"),
     "--kv-events-format json: expected maps or arrays"),
    (("--kv-events", "tcp://*:5557", "--no-prefix-cache"), "--no-prefix-cache keeps none"),
    (("--kv-events", "tcp://*:5557", "--cache", "streaming", "--cr", "4"),
     "prefixes cannot be shared"),
    (("--kv-events-topic", "x"), "--kv-events-topic requires --kv-events"),
    (("--kv-block-size", "0"), "--kv-block-size 0: expected 1 to 65536")])
def test_what_cannot_be_published_is_refused(flags, error):
    run = subprocess.run([BINARY, "serve", "--model", "assets/dms-cr8", "--port", "0", *flags],
                         cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert run.returncode != 0 and error in run.stderr, run.stderr
