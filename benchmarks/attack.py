#!/usr/bin/env python3
"""Attacks a winnow server for minutes, at random, while well-behaved streams go on whose answers must
stay the ones that the same requests get alone. Says what was tried how often and what came back, and
whether the server leaked.

  benchmarks/attack.py --minutes 5 --streams 8 --attackers 48 --out FILE.json -- [serve flags]

The server runs with --deterministic and short time-outs. It fails on a wrong answer, an answer of 5xx or
one that is no error object, a whole request without an answer, memory that grows, sequences or pages that
stay, or an exit code. This program is one thread with thousands of connections: where it stood still for
longer than the time-out of a head, a connection that was closed is counted as "closed, we were late"."""
import argparse
import asyncio
import collections
import datetime
import json
import pathlib
import random
import resource
import socket
import struct
import sys
import time

from serving_load import ROOT, Server, metrics
from soak import ask, variants

HEADER_TIMEOUT = 2
TIMEOUTS = ["--header-timeout", str(HEADER_TIMEOUT), "--body-timeout", "3", "--write-timeout", "3"]
GREEDY = {"prompt": "The sea was", "max_tokens": 40, "temperature": 0, "ignore_eos": True}
LONG = GREEDY | {"max_tokens": 3000, "stream": True}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", default=str(ROOT / "build/release/bin/winnow"))
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--streams", type=int, default=8, help="well-behaved clients")
    parser.add_argument("--attackers", type=int, default=48)
    parser.add_argument("--flood", type=int, default=2000, help="connections that are opened at once")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("serve", nargs="*", help="more flags of winnow serve")
    return parser.parse_args()


def post(body, path="/v1/completions"):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n").encode() + data


def damage(data, rng):
    """Some bytes changed, left out, doubled or cut off."""
    data = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0:
                data[at:at + 1] = bytes([rng.randrange(256)])
            case 1:
                del data[at:at + rng.randint(1, 20)]
            case 2:
                data[at:at] = rng.randbytes(rng.randint(1, 20))
            case 3:
                data[at:at] = data[at:at + rng.randint(1, 40)]
            case 4:
                data[at:at + 1] = rng.choice([b"\0", b"\r\n", b"-1", b"1e400", b"{", b"[[[[", b'"', b"\xff"])
    return bytes(data[:rng.randint(1, len(data) + 1)] if rng.random() < 0.2 else data)


def wrong_field(rng):
    field = rng.choice(["prompt", "max_tokens", "n", "temperature", "top_p", "stop", "seed", "logprobs", "stream",
                        "echo", "logit_bias", "response_format", "model", "top_k", "stream_options", "messages"])
    value = rng.choice([None, -1, 0, 2**64, 1e308, "x", "", [], {}, [[1]], [-5], True, "\0", "\ud800", [None], 1.5,
                        "x" * 100_000, list(range(9000))])
    body = GREEDY | {"max_tokens": 2, field: value}
    if isinstance(body.get("n"), int):
        body["n"] = min(body["n"], 4) if body["n"] < 1000 else body["n"]
    return body


def reset(writer):
    """Closes so that the other side hears a reset."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()


async def finish(reader, seconds=12):
    return await asyncio.wait_for(reader.read(1 << 22), seconds)


# Each attack talks over a connection of its own and returns what came back.

async def nonsense(rng, reader, writer):
    writer.write(rng.randbytes(rng.randint(1, 3000)) + rng.choice([b"", b"\r\n\r\n"]))
    return await finish(reader)


async def damaged_request(rng, reader, writer):
    writer.write(damage(post(GREEDY), rng))
    return await finish(reader)


async def damaged_json(rng, reader, writer):
    writer.write(post(damage(json.dumps(GREEDY).encode(), rng), rng.choice(
        ["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"])))
    return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 12)


async def wrong_fields(rng, reader, writer):
    writer.write(post(wrong_field(rng)))
    return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)


async def slow_head(rng, reader, writer):
    for byte in b"GET /health HTTP/1.1\r\nX-Slow: " + b"a" * 100:
        writer.write(bytes([byte]))
        await asyncio.sleep(rng.uniform(0, 0.3))
        if reader.at_eof():
            break
    return await finish(reader)


async def slow_body(rng, reader, writer):
    writer.write(b"POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n")
    for _ in range(20):
        writer.write(b"x" * rng.randint(1, 5))
        await asyncio.sleep(0.3)
        if reader.at_eof():
            break
    return await finish(reader)


async def huge_body(rng, reader, writer):
    announced = rng.random() < 0.5
    writer.write(b"POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\n" +
                 (b"Content-Length: 10000000\r\n\r\n" if announced else b"Transfer-Encoding: chunked\r\n\r\n"))
    piece = b"x" * 100_000
    for _ in range(100):
        writer.write(piece if announced else b"%x\r\n%s\r\n" % (len(piece), piece))
        await writer.drain()
    return await finish(reader)


async def huge_head(rng, reader, writer):
    writer.write(b"GET / HTTP/1.1\r\n" + b"X: " + b"a" * rng.randint(17_000, 60_000) + b"\r\n\r\n")
    return await finish(reader)


async def deep_json(rng, reader, writer):
    writer.write(post(rng.choice([b"[", b'{"a":']) * rng.randint(1000, 100_000)))
    return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 12)


async def too_long(rng, reader, writer):
    writer.write(post(GREEDY | {"prompt": "word " * rng.randint(10_000, 200_000)}))
    return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)


async def leave_amid_answer(rng, reader, writer):
    writer.write(post(LONG | {"n": rng.randint(1, 3)}))
    await asyncio.wait_for(reader.read(rng.randint(1, 3000)), 30)
    await asyncio.sleep(rng.uniform(0, 0.5))
    if rng.random() < 0.5:
        reset(writer)
    return b"left"


async def leave_at_once(rng, reader, writer):
    writer.write(post(LONG)[:rng.randint(0, 400)])
    if rng.random() < 0.5:
        reset(writer)
    return b"left"


async def half_close(rng, reader, writer):
    writer.write(post(LONG))
    await asyncio.wait_for(reader.read(100), 30)
    writer.write_eof()
    return b"left" if b"[DONE]" not in await finish(reader, 20) else b"HTTP/1.1 599 went on"


async def never_read(rng, reader, writer):
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    writer.transport.pause_reading()
    writer.write(post(LONG | {"max_tokens": 200, "logprobs": 20, "n": 4}))
    await asyncio.sleep(rng.uniform(1, 6))
    return b"left"


async def pipelined(rng, reader, writer):
    count = rng.randint(2, 200)
    writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * count
                 + b"GET /nothing HTTP/1.1\r\nConnection: close\r\n\r\n")
    data = await finish(reader, 30)
    while more := await asyncio.wait_for(reader.read(1 << 20), 30):
        data += more
    whole = data.count(b"HTTP/1.1 200 OK") == count
    return data if whole or not data else b"HTTP/1.1 599 answers are missing"


async def traversal(rng, reader, writer):
    path = "/" + "".join(rng.choice(["..", "%2e%2e", "/", "%2f", "etc", "passwd", "\\", "%00", "v1", "models"])
                         for _ in range(rng.randint(1, 12)))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    return await finish(reader)


ATTACKS = [nonsense, damaged_request, damaged_json, wrong_fields, slow_head, slow_body, huge_body, huge_head,
           deep_json, too_long, leave_amid_answer, leave_at_once, half_close, never_read, pipelined, traversal]
WHOLE_REQUESTS = {damaged_json, wrong_fields, huge_head, deep_json, too_long, pipelined, traversal}


def outcome(data):
    """The status that came back; bad if it must not."""
    if data == b"left":
        return "left"
    if not data.startswith(b"HTTP/1.1 "):
        return "closed" if not data else "bad: no answer of HTTP"
    status = int(data[9:12])
    head, _, body = data.partition(b"\r\n\r\n")
    if status >= 500:
        return f"bad: {status}"
    if status >= 400 and body and not (b'"error":{"message":' in body):
        return f"bad: {status} without an error object"
    return str(status)


class Standstill:
    """When this program's event loop last stood still for as long as a client may take for a head."""
    def __init__(self):
        self.end = -1.0

    async def watch(self):
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.05)
            now = time.monotonic()
            if now - last > 0.9 * HEADER_TIMEOUT:
                self.end = now
            last = now


async def attack(port, rng, counts, standstill):
    kind = rng.choice(ATTACKS)
    writer = None
    begun = time.monotonic()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        result = outcome(await kind(rng, reader, writer))
    except TimeoutError:
        result = "waits for more"  # half a request, or an answer that is still being written
    except (OSError, asyncio.IncompleteReadError):
        result = "closed"
    finally:
        if writer:
            writer.close()
    if result == "closed" and kind in WHOLE_REQUESTS:
        result = "closed, we were late" if standstill.end >= begun else "bad: closed without an answer"
    counts[kind.__name__][result] += 1


async def flood(port, count, rng, counts):
    """Thousands of connections at once, some of which say something."""
    async def one():
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            if rng.random() < 0.3:
                writer.write(b"GET /hea")
            await asyncio.sleep(rng.uniform(0, 2))
            writer.close()
            counts["connection of a flood"]["left"] += 1
        except OSError:
            counts["connection of a flood"]["closed"] += 1
    await asyncio.gather(*(one() for _ in range(count)))


async def run(server, args):
    rng = random.Random(args.seed)
    bodies = list(variants(24, rng, (ROOT / "assets/demo_prompt.txt").read_text()))
    alone = [await ask(server.port, body) for body in bodies]
    answers = collections.Counter()
    counts = collections.defaultdict(collections.Counter)
    memory = []
    standstill = Standstill()
    end = time.monotonic() + 60 * args.minutes

    async def behave():
        while time.monotonic() < end:
            which = rng.randrange(len(bodies))
            try:
                answer = await ask(server.port, bodies[which] | {"stream": rng.random() < 0.5})
                answers["right" if answer == alone[which] else "wrong"] += 1
            except (RuntimeError, ValueError, OSError, IndexError) as error:
                answers["failed"] += 1
                print("a well-behaved client:", error, file=sys.stderr)

    async def misbehave():
        while time.monotonic() < end:
            await attack(server.port, rng, counts, standstill)

    async def swarm():
        while time.monotonic() < end:
            await flood(server.port, args.flood, rng, counts)
            await asyncio.sleep(10)

    async def watch():
        while True:
            memory.append(round(server.rss_mib(), 1))
            await asyncio.sleep(5)

    watchers = [asyncio.create_task(watch()), asyncio.create_task(standstill.watch())]
    await asyncio.gather(*(behave() for _ in range(args.streams)), *(misbehave() for _ in range(args.attackers)),
                         swarm())
    for watcher in watchers:
        watcher.cancel()
    await asyncio.sleep(4)
    last = await metrics(server.port)
    half = memory[len(memory) // 2:]
    return {"well_behaved": dict(answers), "attacks": {kind: dict(of) for kind, of in sorted(counts.items())},
            "rss_mib": memory, "rss_second_half_grew_mib": round(half[-1] - half[0], 1),
            "at_end": {name: last["winnow_" + name] for name in
                       ("sequences_running", "sequences_waiting", "requests_open", "http_connections", "kv_bytes",
                        "prefixes")},
            "preemptions": last["winnow_preemptions_total"]}


def is_bad(result):
    end = result["at_end"]
    return (any(kind.startswith("bad") for of in result["attacks"].values() for kind in of)
            or set(result["well_behaved"]) != {"right"} or result["exit_code"] != 0
            or end["sequences_running"] + end["sequences_waiting"] + end["requests_open"] > 0
            or (end["kv_bytes"] > 0 and end["prefixes"] == 0))


def main():
    args = arguments()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    server = Server(args.binary, ["--deterministic", "--max-connections", "8192", *TIMEOUTS, *args.serve])
    try:
        result = asyncio.run(run(server, args))
    finally:
        code = server.stop()
    result |= {"date": datetime.date.today().isoformat(), "minutes": args.minutes, "streams": args.streams,
               "attackers": args.attackers, "flood": args.flood, "serve": args.serve, "exit_code": code}
    print(json.dumps({k: v for k, v in result.items() if k != "rss_mib"}, indent=1))
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(is_bad(result))


if __name__ == "__main__":
    main()
