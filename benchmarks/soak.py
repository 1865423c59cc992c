#!/usr/bin/env python3
"""Keeps a winnow server busy for a long time and says whether anything went wrong: an answer that is not
the one the same request gets alone, an error, memory that grows, pages that do not come back.

  benchmarks/soak.py --minutes 60 --concurrency 8 --out FILE.json -- [serve flags]

Requests are greedy, of mixed lengths, some in streams, some abandoned half way. The server runs with
--deterministic, so that answers must be equal to the last token. A device has no such mode: there
(--rounded) an answer may part from the one alone where two tokens are about as likely, so those that do are
counted and must have as many tokens."""
import argparse
import asyncio
import datetime
import json
import pathlib
import random
import sys
import time

from serving_load import ROOT, Server, metrics, request


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
               "temperature": 0, "ignore_eos": True,
               "stream_options": {"include_usage": True}}


async def ask(port, body, leave_after=None):
    """The answer's text and how many tokens it has; None when it was abandoned."""
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
        answer = json.loads(data)
        return answer["choices"][0]["text"], answer["usage"]["completion_tokens"]
    events = [json.loads(line[6:]) for line in data.decode().split("\n\n") if line.startswith("data: {")]
    text = "".join(choice["text"] for event in events for choice in event["choices"])
    return text, events[-1]["usage"]["completion_tokens"]


async def soak(server, args):
    rng = random.Random(args.seed)
    bodies = list(variants(args.variants, rng, (ROOT / "assets/demo_prompt.txt").read_text()))
    alone = [await ask(server.port, body) for body in bodies]
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
            except (RuntimeError, ValueError, OSError, IndexError) as error:
                counts["errors"] += 1
                print(error, file=sys.stderr)
                continue
            counts["abandoned" if answer is None else "answers"] += 1
            if answer is None or answer == alone[which]:
                continue
            parted = args.rounded and answer[1] == alone[which][1]
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
