#!/usr/bin/env python3
"""Loads a winnow server with C streams at a time and reports throughput, time to first token, time between
tokens, and where the server's time went; starts the server itself.

  benchmarks/serving_load.py --concurrency 1 8 32 64 --seconds 20 --out FILE.json -- [serve flags]

Every stream is a POST /v1/completions with "stream": true over a plain socket that stays open, from
--clients processes, so that the clients cost little of the machine that both share. Prompts are cut from the demo prompt at random
lengths."""
import argparse
import asyncio
import collections
import concurrent.futures
import datetime
import json
import os
import pathlib
import random
import re
import resource
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
EVENT = b'data: {"id"'
DONE = b"data: [DONE"
KEPT = len(EVENT) - 1  # of what has been read, and been searched: no whole one
assert len(EVENT) == len(DONE)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", default=str(ROOT / "build/release/bin/winnow"))
    parser.add_argument("--model", default="assets/dms-cr8")
    parser.add_argument("--cpus", help="cores that the server may use, as taskset takes them")
    parser.add_argument("--clients", type=int, default=1, help="processes that ask")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--warmup", type=float, default=2, help="seconds before what is measured")
    parser.add_argument("--prompt-chars", type=int, nargs=2, default=[200, 8000])
    parser.add_argument("--max-tokens", type=int, nargs=2, default=[16, 128])
    parser.add_argument("--shared-prompt", action="store_true", help="all begin with the same text")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("serve", nargs="*", help="flags of winnow serve")
    return parser.parse_args()


class Server:
    def __init__(self, binary, flags, model="assets/dms-cr8", cpus=None):
        self.process = subprocess.Popen(
            [*(["taskset", "-c", cpus] if cpus else []), binary, "serve", "--model", model, "--port", "0",
             "--log-level", "warn", *flags], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self.port = int(re.search(r":(\d+)$", self.process.stdout.readline()).group(1))

    def rss_mib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024

    def cpu_seconds(self):
        """Processor time by thread name: "engine", "http", and "winnow" for the engine's helpers."""
        seconds = collections.Counter()
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            name = (task / "comm").read_text().strip()
            seconds[name] += int((task / "schedstat").read_text().split()[0]) / 1e9
        return seconds

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
    """Values by name; those with a label as name{value}."""
    _, reader, writer = await request(port, "GET", "/metrics")
    text = (await reader.read()).decode()
    writer.close()
    return {m[1] + (f"{{{m[2]}}}" if m[2] else ""): float(m[3])
            for m in re.finditer(r'^(\w+)(?:\{\w+="([^"]*)"\})? ([-+.e\d]+)$', text, re.M)}


class Connection:
    """One that stays, as those of the client libraries do."""

    def __init__(self, port):
        self.port = port
        self.reader = self.writer = None

    async def stream(self, body, begin, end, result):
        """One answer; what comes from `begin` to `end` is counted."""
        done = False
        try:
            done = await self.ask(body, begin, end, result)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        if not done:
            self.close()
        result["requests" if done else "errors"] += 1

    async def ask(self, body, begin, end, result):
        """Whether the answer has come to its end."""
        last = time.perf_counter()
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        data = json.dumps(body).encode()
        self.writer.write(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                          f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        begun = done = False
        text = await self.reader.readuntil(b"\r\n\r\n")
        ok = text.split()[1] == b"200"
        while ok and not text.endswith(b"\r\n0\r\n\r\n"):  # the last chunk
            data = await self.reader.read(1 << 16)
            if not data:
                break
            now = time.perf_counter()
            text = text[-KEPT:] + data
            for _ in range(text.count(EVENT)):
                if begin <= now < end:
                    result["between" if begun else "first"].append(now - last)
                begun, last = True, now
            done = done or DONE in text
        return done

    def close(self):
        if self.writer is not None:
            self.writer.close()
            self.writer = None


async def ask_until(port, args, streams, seed, begin, end):
    text = (ROOT / "assets/demo_prompt.txt").read_text()
    rng = random.Random(seed)
    result = {"requests": 0, "errors": 0, "first": [], "between": []}

    async def client():
        connection = Connection(port)
        while True:
            length = rng.randint(*args.prompt_chars)
            start = 0 if args.shared_prompt else rng.randrange(max(1, len(text) - length))
            prompt = text[start:start + length]
            await connection.stream({
                "prompt": prompt + (f"\nQuestion {rng.randrange(100000)}: Where?" if args.shared_prompt else ""),
                "max_tokens": rng.randint(*args.max_tokens), "temperature": args.temperature, "stream": True,
                "ignore_eos": True, "seed": rng.randrange(1 << 30)}, begin, end, result)

    clients = [asyncio.create_task(client()) for _ in range(streams)]
    _, running = await asyncio.wait(clients, timeout=end + 0.5 - time.perf_counter())
    for task in running:
        task.cancel()
    for failed in await asyncio.gather(*clients, return_exceptions=True):
        if not isinstance(failed, asyncio.CancelledError):
            raise failed
    return result


def ask_in_process(*args):
    return asyncio.run(ask_until(*args))


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))] if values else None


def milliseconds(values):
    return {f"p{round(q * 100)}": round(1e3 * quantile(values, q), 2) if values else None for q in (.5, .99)}


def shares(parts):
    total = sum(parts.values())
    return {name: round(seconds / total, 4) for name, seconds in parts.items()} if total else {}


async def load(server, args, concurrency):
    running, kv_bytes = [], []

    async def watch():
        while True:
            now = await metrics(server.port)
            running.append(int(now["winnow_sequences_running"]))
            kv_bytes.append(int(now["winnow_kv_bytes"]))
            await asyncio.sleep(0.25)

    async def snapshot(at):
        await asyncio.sleep(at - time.perf_counter())
        return await metrics(server.port), server.cpu_seconds()

    clients = min(args.clients, concurrency)
    streams = [concurrency // clients + (i < concurrency % clients) for i in range(clients)]
    begin = time.perf_counter() + args.warmup
    end = begin + args.seconds
    with concurrent.futures.ProcessPoolExecutor(clients) as pool:
        loop = asyncio.get_running_loop()
        asking = [loop.run_in_executor(pool, ask_in_process, server.port, args, count, 1000 * args.seed + i, begin,
                                       end) for i, count in enumerate(streams)]
        before, cpu_before = await snapshot(begin)
        watcher = asyncio.create_task(watch())
        after, cpu_after = await snapshot(end)
        watcher.cancel()
        results = await asyncio.gather(*asking)
    seconds = args.seconds
    cpu = cpu_after - cpu_before
    first, between = ([t for r in results for t in r[name]] for name in ("first", "between"))
    grew = lambda name: after[name] - before[name]
    # Tokens as the server counts them: some add no text, and make no event.
    count = {name: sum(r[name] for r in results) for name in ("requests", "errors")}
    parts = {m[1]: grew(m[0]) for m in (re.fullmatch(r"winnow_engine_seconds_total\{(\w+)\}", name)
                                        for name in after) if m}
    idle = parts.pop("idle")
    steps = grew("winnow_engine_steps_total")
    live, dense = (grew(f"winnow_kv_{kind}_entries_total") for kind in ("live", "dense"))
    return count | {
        "concurrency": concurrency, "tokens_per_s": round(grew("winnow_generated_tokens_total") / seconds, 1),
        "events_per_s": round((len(first) + len(between)) / seconds, 1),
        "prompt_tokens_per_s": round(grew("winnow_prompt_tokens_total") / seconds, 1),
        "first_token_ms": milliseconds(first), "between_tokens_ms": milliseconds(between),
        "steps": int(steps), "ms_per_step": round(1e3 * sum(parts.values()) / steps, 3) if steps else None,
        "engine_idle": round(idle / seconds, 4), "engine_busy_shares": shares(parts),
        "cpu_seconds": {name: round(value, 3) for name, value in cpu.items()}, "cpu_shares": shares(cpu),
        "compression_ratio": round(dense / live, 2) if live else None,  # of answers that ended
        "prefix_hits": grew("winnow_prefix_hits_total"), "preemptions": grew("winnow_preemptions_total"),
        "most_running": max(running), "mean_running": round(sum(running) / len(running), 1),
        "most_kv_bytes": max(kv_bytes), "rss_mib": round(server.rss_mib(), 1)}


def machine():
    names = re.findall(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return {"cpu": names[0] if names else "", "cores": os.cpu_count(), "load_average": os.getloadavg()}


def scenario_parser(description, model):
    """The arguments of benchmarks whose scenarios have a server each."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "build/release/bin/winnow"))
    parser.add_argument("--model", default=model)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("serve", nargs="*", help="flags of winnow serve")
    return parser


def run_scenario(args, flags, scenario):
    """Prints and returns what scenario(port) measured on a new server."""
    server = Server(args.binary, [*flags, *args.serve], args.model)
    try:
        result = scenario(server.port)
    finally:
        server.stop()
    print(json.dumps(result), flush=True)
    return result


def write_runs(args, runs):
    if args.out:
        args.out.write_text(json.dumps({"date": datetime.date.today().isoformat(), "machine": machine(),
                                        "model": args.model, "serve": args.serve, "runs": runs}, indent=1) + "\n")


def main():
    args = arguments()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 1 << 16), hard))
    server = Server(args.binary, args.serve, args.model, args.cpus)
    rows = []
    try:
        for concurrency in args.concurrency:
            rows.append(asyncio.run(load(server, args, concurrency)))
            print(json.dumps(rows[-1]), flush=True)
    finally:
        code = server.stop()
    if args.out:
        settings = {name: str(value) if isinstance(value, pathlib.Path) else value
                    for name, value in vars(args).items() if name not in ("binary", "out", "concurrency")}
        args.out.write_text(json.dumps({"date": datetime.date.today().isoformat(), "machine": machine(),
                                        **settings, "exit_code": code, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
