#!/usr/bin/env python3
"""Chats of several turns over several winnow servers behind a router: how much of their prompts the prefix caches
hold, and the time to the first token, by the router's policy. Starts servers and routers itself, on loopback.

  pip install vllm-router sglang-router
  benchmarks/routers.py --chats 12 --turns 6 --out FILE.json [-- serve flags]

Each chat is a client that sends its next message when the answer has come; all begin at once. A prompt holds the whole
chat so far. Each run has new servers, whose caches are empty. With --slow the last server is stopped for a part of each
second: what its clients and the others wait."""
import argparse
import asyncio
import contextlib
import datetime
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import threading
import time

from serving_load import ROOT, Server, machine, metrics, request

STORY = (ROOT / "assets/demo_prompt.txt").read_text()
RUNS = [("vllm-router", "round_robin"), ("vllm-router", "cache_aware"), ("vllm-router", "kv_aware"),
        ("sglang-router", "round_robin"), ("sglang-router", "cache_aware")]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Worker(Server):
    def __init__(self, binary, flags, model, tells_events):
        port = free_port()
        self.events = f"tcp://127.0.0.1:{port}"
        super().__init__(binary, [*(["--kv-events", f"tcp://*:{port}"] if tells_events else []), *flags], model)
        self.url = f"http://127.0.0.1:{self.port}"


def router_command(router, policy, port, workers, model):
    command = [router, *(["launch"] if router == "sglang-router" else []), "--host", "127.0.0.1", "--port", str(port),
               "--policy", policy, "--prometheus-port", str(free_port()), "--worker-urls", *(w.url for w in workers)]
    if policy == "kv_aware":
        for worker in workers:
            command += ["--kv-event-source", f"{worker.url}={worker.events}"]
        command += ["--kv-event-block-size", "16", "--kv-event-model", pathlib.Path(model).name]
    elif policy == "cache_aware":
        # Both send a chat away from its server when that has 64 requests more than the other.
        command += ["--cache-threshold", "0.3"]
    return command


@contextlib.contextmanager
def routing(router, policy, workers, args):
    port = free_port()
    with open(args.log, "a") as log:
        # Of the model that events are of: it tokenises prompts to look for them.
        tokenizer = {"VLLM_ROUTER_TOKENIZER": str(ROOT / args.model)}
        process = subprocess.Popen(router_command(router, policy, port, workers, args.model), stdout=log, stderr=log,
                                   env=os.environ | tokenizer)
        try:
            asyncio.run(wait_for(port, process))
            yield port
        finally:
            process.terminate()
            process.wait(60)


@contextlib.contextmanager
def slowed(process, share):
    """Lets a process run for `share` of each second; 1: all the time."""
    end = threading.Event()

    def stop_and_go():
        while share < 1 and not end.wait(share):
            process.send_signal(signal.SIGSTOP)
            end.wait(1 - share)
            process.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=stop_and_go)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


async def wait_for(port, process):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert process.poll() is None, "the router has ended: see --log"
        with contextlib.suppress(OSError, IndexError):
            status, _, writer = await request(port, "GET", "/v1/models")
            writer.close()
            if status in (200, 401):  # 401: a server's, with keys
                return
        await asyncio.sleep(0.1)
    raise TimeoutError("the router knows of no server")


async def turn(port, messages, seed, args):
    begin = time.perf_counter()
    status, reader, writer = await request(port, "POST", "/v1/chat/completions", {
        "model": pathlib.Path(args.model).name, "messages": messages, "seed": seed, "max_tokens": args.max_tokens,
        "temperature": 0, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}})
    assert status == 200, (status, await reader.read())
    first, text, usage = None, "", None
    async for line in reader:
        if line.startswith(b"data: {"):
            event = json.loads(line[6:])
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                first = first or time.perf_counter() - begin
                text += choice["delta"].get("content") or ""
    writer.close()
    return text, {"seconds": time.perf_counter() - begin, "first_token": first, "prompt": usage["prompt_tokens"],
                  "found": usage["prompt_tokens_details"]["cached_tokens"]}


async def chat(port, number, args):
    at = number * args.story // 2 % (len(STORY) - args.story)
    messages, turns = [{"role": "user", "content": f"Chat {number}. {STORY[at:at + args.story]}"}], []
    for i in range(args.turns):
        text, told = await turn(port, messages, number, args)
        turns.append({"chat": number, "turn": i} | told)
        at = (number + i) * 97 % 9000
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": STORY[at:at + 80]}]
    return turns


async def chats(port, args):
    return [t for turns in await asyncio.gather(*(chat(port, i, args) for i in range(args.chats))) for t in turns]


def run(router, policy, args):
    workers = [Worker(args.binary, args.serve, args.model, policy == "kv_aware") for _ in range(args.workers)]
    try:
        with routing(router, policy, workers, args) as port, slowed(workers[-1].process, args.slow):
            turns = asyncio.run(chats(port, args))
        computed = [asyncio.run(metrics(worker.port))["winnow_prompt_tokens_total"] for worker in workers]
    finally:
        for worker in workers:
            worker.stop()
    later = [t for t in turns if t["turn"] > 0]
    result = {"router": router, "policy": policy, "turns": len(turns),
              "hit_rate": sum(t["found"] for t in later) / sum(t["prompt"] for t in later),
              "first_token_p50": statistics.median(t["first_token"] for t in later),
              "first_token_p90": statistics.quantiles((t["first_token"] for t in later), n=10)[-1],
              "seconds_p50": statistics.median(t["seconds"] for t in turns), "seconds_max": max(t["seconds"] for t in turns),
              "prompt_tokens_by_worker": computed}
    print(json.dumps(result), flush=True)
    return result | {"rows": turns}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", default=str(ROOT / "build/release/bin/winnow"))
    parser.add_argument("--model", default="assets/dms-cr8")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--chats", type=int, default=12)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--story", type=int, default=3000, help="characters that a chat begins with")
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--runs", nargs="+", default=["/".join(r) for r in RUNS], help="ROUTER/POLICY")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--slow", type=float, default=1.0, help="the part of each second that the last server runs")
    parser.add_argument("--log", default="/dev/null", help="of the routers")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("serve", nargs="*", help="flags of winnow serve")
    args = parser.parse_args()
    results = [run(*which.split("/"), args) for _ in range(args.repeat) for which in args.runs]
    if args.out:
        settings = {name: getattr(args, name) for name in ("model", "workers", "chats", "turns", "story", "max_tokens",
                                                           "slow", "serve")}
        head = json.dumps({"date": datetime.date.today().isoformat(), "machine": machine(), **settings}, indent=1)
        rows = ",\n  ".join(json.dumps(result) for result in results)
        args.out.write_text(f'{head[:-2]},\n "runs": [\n  {rows}\n ]\n}}\n')


if __name__ == "__main__":
    main()
