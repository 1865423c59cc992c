#!/usr/bin/env python3
"""Loads a winnow server with C streams at a time and reports throughput, time to first token and time
between tokens; starts the server itself.

  benchmarks/serving_load.py --concurrency 1 8 32 64 --seconds 20 --out FILE.json -- [serve flags]

Every stream is a POST /v1/completions with "stream": true over a plain socket, so that the client costs
little of the machine that both share. Prompts are cut from the demo prompt at random lengths."""
import argparse
import asyncio
import datetime
import json
import pathlib
import random
import re
import resource
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", default=str(ROOT / "build/release/bin/winnow"))
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--prompt-chars", type=int, nargs=2, default=[200, 8000])
    parser.add_argument("--max-tokens", type=int, nargs=2, default=[16, 128])
    parser.add_argument("--shared-prompt", action="store_true", help="all begin with the same text")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("serve", nargs="*", help="flags of winnow serve")
    return parser.parse_args()


class Server:
    def __init__(self, binary, flags):
        self.process = subprocess.Popen(
            [binary, "serve", "--model", "assets/dms-cr8", "--port", "0", "--log-level", "warn", *flags],
            cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self.port = int(re.search(r":(\d+)$", self.process.stdout.readline()).group(1))

    def rss_mib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


async def request(port, method, path, body=None):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps(body).encode() if body is not None else b""
    writer.write(f"{method} {path} HTTP/1.0\r\nContent-Type: application/json\r\n"
                 f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
    status = int((await reader.readline()).split()[1])
    while (await reader.readline()).strip():
        pass
    return status, reader, writer


async def metrics(port):
    _, reader, writer = await request(port, "GET", "/metrics")
    text = (await reader.read()).decode()
    writer.close()
    return {m[1]: float(m[2]) for m in re.finditer(r"^(\w+) ([-+.e\d]+)$", text, re.M)}


async def stream(port, body, result):
    start = time.perf_counter()
    status, reader, writer = await request(port, "POST", "/v1/completions", body)
    if status != 200:
        result["errors"] += 1
        return
    last = None
    done = False
    async for line in reader:
        if line.startswith(b'data: {"id"') and b'"choices":[{' in line:
            now = time.perf_counter()
            if last is None:
                result["first"].append(now - start)
            else:
                result["between"].append(now - last)
            last = now
            result["tokens"] += 1
        elif line.startswith(b"data: {"):
            result["errors"] += b'"error"' in line
        elif line.startswith(b"data: [DONE]"):
            done = True
    writer.close()
    result["errors"] += not done
    result["requests"] += 1


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))] if values else None


async def load(server, args, concurrency, text):
    rng = random.Random(args.seed)
    result = {"requests": 0, "errors": 0, "tokens": 0, "first": [], "between": []}
    end = time.perf_counter() + args.seconds

    async def client():
        while time.perf_counter() < end:
            length = rng.randint(*args.prompt_chars)
            begin = 0 if args.shared_prompt else rng.randrange(max(1, len(text) - length))
            prompt = text[begin:begin + length]
            await stream(server.port, {
                "prompt": prompt + (f"\nQuestion {rng.random()}: Where?" if args.shared_prompt else ""),
                "max_tokens": rng.randint(*args.max_tokens), "temperature": args.temperature, "stream": True,
                "ignore_eos": True, "seed": rng.randrange(1 << 30)}, result)

    peak = {"running": 0, "bytes": 0}

    async def watch():
        while True:
            now = await metrics(server.port)
            peak["running"] = max(peak["running"], int(now["winnow_sequences_running"]))
            peak["bytes"] = max(peak["bytes"], int(now["winnow_kv_bytes"]))
            await asyncio.sleep(0.25)

    before = await metrics(server.port)
    start = time.perf_counter()
    watcher = asyncio.create_task(watch())
    await asyncio.gather(*(client() for _ in range(concurrency)))
    seconds = time.perf_counter() - start
    watcher.cancel()
    after = await metrics(server.port)
    grew = lambda name: after[name] - before[name]
    first, between = result.pop("first"), result.pop("between")
    return result | {
        "concurrency": concurrency, "seconds": round(seconds, 2),
        "tokens_per_s": round(result["tokens"] / seconds, 1),
        "prompt_tokens_per_s": round(grew("winnow_prompt_tokens_total") / seconds, 1),
        "first_token_ms": {f"p{round(q * 100)}": round(1e3 * quantile(first, q), 1) for q in (.5, .99)},
        "between_tokens_ms": {f"p{round(q * 100)}": round(1e3 * quantile(between, q), 2) for q in (.5, .99)},
        "forward_share": round(grew("winnow_forward_seconds_total") / seconds, 4),
        "prefix_hits": grew("winnow_prefix_hits_total"), "preemptions": grew("winnow_preemptions_total"),
        "most_running": peak["running"], "most_kv_bytes": peak["bytes"],
        "rss_mib": round(server.rss_mib(), 1)}


def main():
    args = arguments()
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    text = (ROOT / "assets/demo_prompt.txt").read_text()
    server = Server(args.binary, args.serve)
    rows = []
    try:
        for concurrency in args.concurrency:
            rows.append(asyncio.run(load(server, args, concurrency, text)))
            print(json.dumps(rows[-1]), flush=True)
    finally:
        code = server.stop()
    if args.out:
        args.out.write_text(json.dumps({
            "date": datetime.date.today().isoformat(), "serve": args.serve, "seconds": args.seconds,
            "prompt_chars": args.prompt_chars, "max_tokens": args.max_tokens, "temperature": args.temperature,
            "shared_prompt": args.shared_prompt, "exit_code": code, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
