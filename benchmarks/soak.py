#!/usr/bin/env python3
"""Keeps a winnow server busy for a long time and says whether anything went wrong: an answer that is not
the one the same request gets alone, an error, memory that grows, pages that do not come back.

  benchmarks/soak.py --minutes 60 --concurrency 8 --out FILE.json -- [serve flags]

Requests are greedy, of mixed lengths, some in streams, some abandoned half way. The server runs with
--deterministic, so that answers must be equal to the last token. A device has no such mode: there
(--rounded) an answer may part from the one alone where two tokens are about as likely: these are counted, and
one that parts anywhere else is wrong."""
import argparse
import asyncio
import datetime
import json
import pathlib
import random
import sys
import time

from serving_load import ROOT, Server, metrics, request

NEAR = 0.5  # nats between two tokens that rounding may exchange


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", default=str(ROOT / "build/release/bin/winnow"))
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--variants", type=int, default=48, help="different requests")
    parser.add_argument("--rounded", action="store_true", help="without --deterministic")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("serve", nargs="*", help="more flags of winnow serve")
    return parser.parse_args()


def variants(count, rng, text):
    for _ in range(count):
        length = int(2 ** rng.uniform(5, 13))
        begin = rng.choice([0, rng.randrange(max(1, len(text) - length))])
        yield {"prompt": text[begin:begin + length], "max_tokens": rng.randint(1, 160),
               "temperature": 0, "ignore_eos": True}


async def ask(port, body, leave_after=None):
    """The answer's text; None when it was abandoned."""
    status, reader, writer = await request(port, "POST", "/v1/completions", body)
    if leave_after is not None:
        await reader.read(leave_after)
        writer.close()
        return None
    data = await reader.read()
    writer.close()
    if status != 200:
        raise RuntimeError(f"status {status}: {data[:200]!r}")
    if not body.get("stream"):
        return whole(json.loads(data)["choices"])
    events = [json.loads(line[6:]) for line in data.decode().split("\n\n") if line.startswith("data: {")]
    return whole([choice for event in events for choice in event["choices"]])


def whole(choices):
    """Their text, which must be as long as was asked for: no request ends at a token."""
    if choices[-1]["finish_reason"] != "length":
        raise RuntimeError(f"an answer that ends with {choices[-1]}")
    return "".join(choice["text"] for choice in choices)


class Alone:
    """What a request is answered when it is alone."""

    def __init__(self, text):
        self.text = text
        self.places = []  # (where a token begins, how much more likely it was than the second)

    @classmethod
    async def ask(cls, port, body, with_margins):
        alone = cls(await ask(port, body))
        if with_margins:
            status, reader, writer = await request(port, "POST", "/v1/completions", body | {"logprobs": 2})
            choice = json.loads(await reader.read())["choices"][0]
            writer.close()
            alone.text = choice["text"]
            tokens = choice["logprobs"]
            for offset, top in zip(tokens["text_offset"], tokens["top_logprobs"]):
                best = sorted(top.values(), reverse=True)
                alone.places.append((offset - tokens["text_offset"][0], best[0] - best[1] if best[1:] else 0.0))
        return alone

    def may_part(self, text):
        """Whether one of the two tokens where `text` parts was about as likely as another one."""
        same = next((i for i, (a, b) in enumerate(zip(self.text, text)) if a != b), min(len(self.text), len(text)))
        return min([margin for offset, margin in self.places if offset <= same][-2:], default=9.0) < NEAR


async def soak(server, args):
    rng = random.Random(args.seed)
    bodies = list(variants(args.variants, rng, (ROOT / "assets/demo_prompt.txt").read_text()))
    alone = [await Alone.ask(server.port, body, args.rounded) for body in bodies]
    counts = {"answers": 0, "abandoned": 0, "wrong": 0, "errors": 0} | ({"parted": 0} if args.rounded else {})
    memory = []
    end = time.monotonic() + 60 * args.minutes

    async def client():
        while time.monotonic() < end:
            which = rng.randrange(len(bodies))
            leave = rng.randrange(2000) if rng.random() < 0.1 else None
            body = bodies[which] | {"stream": rng.random() < 0.5}
            try:
                answer = await ask(server.port, body, leave)
            except (RuntimeError, ValueError, OSError, IndexError, KeyError, EOFError) as error:
                counts["errors"] += 1
                print(repr(error), file=sys.stderr)
                continue
            counts["abandoned" if answer is None else "answers"] += 1
            if answer is not None and answer != alone[which].text:
                parted = args.rounded and alone[which].may_part(answer)
                counts["parted" if parted else "wrong"] += 1

    async def watch():
        while True:
            memory.append(round(server.rss_mib(), 1))
            await asyncio.sleep(5)

    watcher = asyncio.create_task(watch())
    await asyncio.gather(*(client() for _ in range(args.concurrency)))
    watcher.cancel()
    await asyncio.sleep(1)
    last = await metrics(server.port)
    half = memory[len(memory) // 2:]
    return counts | {"rss_mib": memory, "rss_second_half_grew_mib": round(half[-1] - half[0], 1),
                     "kv_bytes_at_end": last["winnow_kv_bytes"],
                     "sequences_at_end": last["winnow_sequences_running"],
                     "preemptions": last["winnow_preemptions_total"],
                     "prefix_hits": last["winnow_prefix_hits_total"]}


def main():
    args = arguments()
    server = Server(args.binary, [*([] if args.rounded else ["--deterministic"]), *args.serve])
    try:
        result = asyncio.run(soak(server, args))
    finally:
        code = server.stop()
    result |= {"date": datetime.date.today().isoformat(), "minutes": args.minutes,
               "concurrency": args.concurrency, "serve": args.serve, "exit_code": code}
    print(json.dumps({k: v for k, v in result.items() if k != "rss_mib"}))
    if args.out:
        args.out.write_text(json.dumps(result) + "\n")
    sys.exit(result["wrong"] + result["errors"] + code != 0)


if __name__ == "__main__":
    main()
