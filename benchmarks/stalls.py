#!/usr/bin/env python3
"""How long others wait while a server does what some request asks for: the longest time between two events of two
streams, and the longest answer of /health, beside each disturbance.

  benchmarks/stalls.py --repeat 3 --out FILE.json

  none      nothing else, for five seconds
  bodies    two prompts of 3.9 million token ids, which are refused
  items     two /v1/responses of 197,500 items, which are refused
  grammars  two grammars of 8,000 rules (293 KiB), each new
  schemas   six clients that take turns with 40 JSON schemas, for ten seconds
  scores    prompt_logprobs of 2,000 tokens

Each has a new server."""
import asyncio
import json
import time

import httpx

from serving_load import run_scenario, scenario_parser, write_runs

STREAMS = 2


async def stream(client, events):
    body = {"prompt": "The sea was", "max_tokens": 3900, "stream": True, "ignore_eos": True, "temperature": 0}
    async with client.stream("POST", "/v1/completions", json=body) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                events.append(time.perf_counter())


async def probe(client, seconds):
    while True:
        begin = time.perf_counter()
        await client.get("/health")
        seconds.append(time.perf_counter() - begin)
        await asyncio.sleep(0.05)


async def two(client, path, bodies):
    answers = await asyncio.gather(*(client.post(path, content=body, headers={"content-type": "application/json"})
                                     for body in bodies))
    return {"statuses": sorted(answer.status_code for answer in answers)}


async def none(client):
    await asyncio.sleep(5.0)
    return {}


async def bodies(client):
    return await two(client, "/v1/completions", [b'{"prompt":[' + b"5," * 3_900_000 + b"5]}"] * 2)


async def items(client):
    item = {"role": "user", "content": "a"}
    return await two(client, "/v1/responses", [json.dumps({"input": [item] * 197_500}).encode()] * 2)


async def grammars(client):
    def grammar(seed):
        rules = [f'r{i} ::= "a{seed}{i}" | "b{i}" r{i + 1}' for i in range(8000)]
        return "\n".join(["root ::= r0", *rules, 'r8000 ::= "end"'])
    return await two(client, "/v1/completions", [
        json.dumps({"prompt": "x", "max_tokens": 1, "structured_outputs": {"grammar": grammar(seed)}}).encode()
        for seed in (1, 2)])


async def schemas(client):
    def schema(i):
        fields = {f"field_{i}_{j}": {"type": "string", "maxLength": 40 + j} for j in range(8)}
        return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    end = time.perf_counter() + 10.0
    count = 0

    async def ask(first):
        nonlocal count
        i = first
        while time.perf_counter() < end:
            answer = await client.post("/v1/completions", json={
                "prompt": "x", "max_tokens": 1, "structured_outputs": {"json": schema(i % 40)}})
            answer.raise_for_status()
            count += 1
            i += 1
    await asyncio.gather(*(ask(7 * client_number) for client_number in range(6)))
    return {"requests_per_s": count / 10.0}


async def scores(client):
    prompt = [10 + 7 * i % 8000 for i in range(2000)]
    answer = await client.post("/v1/completions", json={"prompt": prompt, "max_tokens": 1, "prompt_logprobs": 0})
    return {"statuses": [answer.status_code]}


async def measure(disturb, port):
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=600, limits=limits) as client:
        events = [[] for _ in range(STREAMS)]
        running = [asyncio.create_task(stream(client, each)) for each in events]
        while not all(len(each) > 20 for each in events):
            await asyncio.sleep(0.05)
        answers = []
        running.append(asyncio.create_task(probe(client, answers)))
        begin = time.perf_counter()
        result = await disturb(client)
        end = time.perf_counter()
        await asyncio.sleep(0.2)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    gaps = [after - before for each in events for before, after in zip(each, each[1:]) if begin < after and before < end]
    return result | {"seconds": end - begin, "longest_gap_s": max(gaps, default=None),
                     "health_max_s": max(answers, default=None)}


def main():
    disturbances = {each.__name__: each for each in (none, bodies, items, grammars, schemas, scores)}
    parser = scenario_parser(__doc__, "assets/dms-cr8")
    parser.add_argument("--only", nargs="+", choices=disturbances, default=list(disturbances))
    args = parser.parse_args()
    write_runs(args, [
        run_scenario(args, ["--threads", "1"],
                     lambda port: {"disturbance": name} | asyncio.run(measure(disturbances[name], port)))
        for _ in range(args.repeat) for name in args.only])


if __name__ == "__main__":
    main()
