#!/usr/bin/env python3
"""Bursts of requests that are hard on a scheduler: how long the first tokens take, and how many requests run at a
time.

  benchmarks/bursts.py --repeat 3 --out FILE.json

  shared   a known prompt of 3,000 tokens and 40 of their own each, in a cache for few whole prompts
  cold     a new prompt of 3,000 tokens that all requests begin with
  behind   a short prompt 0.3 s after long ones that share nothing

Each run has a new server. Prompts are random tokens."""
import asyncio
import random
import statistics
import time

import httpx

from serving_load import metrics, run_scenario, scenario_parser, write_runs


def tokens(count, seed):
    choose = random.Random(seed)
    return [choose.randrange(10, 8000) for _ in range(count)]


async def first_token(client, prompt, max_tokens):
    begin = time.perf_counter()
    body = {"prompt": prompt, "max_tokens": max_tokens, "stream": True, "ignore_eos": True}
    first = None
    async with client.stream("POST", "/v1/completions", json=body) as answer:
        async for line in answer.aiter_lines():
            if first is None and line.startswith("data: {"):
                first = time.perf_counter() - begin
    return first


async def most_running(port, requests):
    most = 0
    while not all(request.done() for request in requests):
        most = max(most, (await metrics(port))["winnow_sequences_running"])
        await asyncio.sleep(0.05)
    return most


async def shared(client, port, count):
    prompt = tokens(3000, 1)
    for seed in (2, 3):  # the second one shows where prompts part
        await first_token(client, prompt + tokens(20, seed), 4)
    return await burst(client, port, [(prompt + tokens(40, 10 + i), 100) for i in range(count)])


async def cold(client, port, count):
    prompt = tokens(3000, 1)
    return await burst(client, port, [(prompt + tokens(20, 10 + i), 4) for i in range(count)])


async def burst(client, port, requests):
    begin = time.perf_counter()
    running = [asyncio.create_task(first_token(client, *request)) for request in requests]
    most = await most_running(port, running)
    firsts = [await request for request in running]
    return {"first_token_p50": statistics.median(firsts), "first_token_max": max(firsts),
            "seconds": time.perf_counter() - begin, "most_running": most}


async def behind(client, _, count):
    await first_token(client, tokens(20, 5), 2)
    long = [asyncio.create_task(first_token(client, tokens(3500, 100 + i), 4)) for i in range(count)]
    await asyncio.sleep(0.3)
    first = await first_token(client, tokens(20, 7), 4)
    await asyncio.gather(*long)
    return {"first_token_max": first}


RUNS = [("shared", shared, 40, ["--kv-gib", "0.0625"]), ("cold", cold, 8, []), ("cold", cold, 32, []),
        ("behind", behind, 8, []), ("behind", behind, 16, [])]


async def run(scenario, count, port):
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=600, limits=limits) as client:
        return await scenario(client, port, count)


def main():
    args = scenario_parser(__doc__, "assets/base").parse_args()
    write_runs(args, [
        run_scenario(args, flags, lambda port: {"burst": name, "requests": count} | asyncio.run(run(scenario, count, port)))
        for _ in range(args.repeat) for name, scenario, count, flags in RUNS])


if __name__ == "__main__":
    main()
