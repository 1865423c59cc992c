#!/usr/bin/env python3
"""A prompt's state fetched from another server against computing the prompt: bytes, milliseconds, and processor time of
the server that answers, by cache rule. Starts the servers itself, on loopback.

  benchmarks/prefill.py --tokens 4352 --repeat 5 --out FILE.json [-- serve flags]

Prompts are the demo prompt from different tokens on, over and over. The model is a copy that says it has room for them.

For each prompt, in turn: a server alone computes it and gives one token; the prefill server computes its state (asked for at
/v1/prefill, and again, when it is in memory: the transfer alone); the decode server fetches that state and gives one token."""
import argparse
import datetime
import json
import pathlib
import re
import statistics
import tempfile
import time
import urllib.request

from serving_load import ROOT, Server, machine

STORY = (ROOT / "assets/demo_prompt.txt").read_text()


def post(server, path, body):
    asked = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", json.dumps(body).encode(),
                                   {"Content-Type": "application/json"})
    begin, cpu = time.perf_counter(), sum(server.cpu_seconds().values())
    with urllib.request.urlopen(asked, timeout=600) as answer:
        data = answer.read()
    return data, {"ms": 1e3 * (time.perf_counter() - begin), "cpu_ms": 1e3 * (sum(server.cpu_seconds().values()) - cpu)}


def first_token(server, tokens):
    data, took = post(server, "/v1/completions", {"prompt": tokens, "max_tokens": 1, "temperature": 0})
    answer = json.loads(data)
    return answer["choices"][0]["text"], took | {
        "cached": answer["usage"]["prompt_tokens_details"]["cached_tokens"]}


def fetched_seconds(server):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=60) as answer:
        return float(re.search(r"^winnow_fetched_state_seconds_total (.*)$", answer.read().decode(), re.M).group(1))


def with_positions(model, positions, folder):
    """The demo models have 4,096: what lies beyond was not trained, and takes the same time."""
    copy = pathlib.Path(folder) / pathlib.Path(model).name
    copy.mkdir()
    for file in (ROOT / model).iterdir():
        if file.name != "config.json":
            (copy / file.name).symlink_to(file)
    config = json.loads((ROOT / model / "config.json").read_text())
    config["max_position_embeddings"] = max(config["max_position_embeddings"], positions)
    (copy / "config.json").write_text(json.dumps(config))
    return str(copy)


def story_tokens(server):
    return json.loads(post(server, "/tokenize", {"prompt": STORY})[0])["tokens"]


def measure(rule, args):
    flags = ["--cache", rule, *args.serve]
    prefills, decodes = (["--device", device] for device in args.devices)
    alone = Server(args.binary, [*flags, *decodes], args.model)
    prefill = Server(args.binary, ["--serve-states", *flags, *prefills], args.model)
    decode = Server(args.binary, ["--prefill-from", f"http://127.0.0.1:{prefill.port}", *flags, *decodes], args.model)
    runs = []
    try:
        story = story_tokens(alone)
        for i in range(args.repeat):
            tokens = [story[(97 * i + at) % len(story)] for at in range(args.tokens)]
            text, computed = first_token(alone, tokens)
            state, asked = post(prefill, "/v1/prefill", {"tokens": tokens})
            again, transfer = post(prefill, "/v1/prefill", {"tokens": tokens})
            assert state == again, "the state in memory is another one"
            before = fetched_seconds(decode)
            taken, resumed = first_token(decode, tokens)
            assert resumed["cached"] == len(tokens) - 1 and taken == text
            runs.append({"rule": rule, "bytes": len(state), "computed": computed, "prefill": asked, "transfer": transfer,
                         "resumed": resumed, "fetch_ms": 1e3 * (fetched_seconds(decode) - before)})
    finally:
        for server in (alone, prefill, decode):
            server.stop()
    medians = {name: statistics.median(run[name]["ms"] for run in runs) for name in ("computed", "transfer", "resumed")}
    cpu = {name: statistics.median(run[name]["cpu_ms"] for run in runs) for name in ("computed", "resumed")}
    print(json.dumps({"rule": rule, "bytes": statistics.median(run["bytes"] for run in runs), "ms": medians,
                      "fetch_ms": statistics.median(run["fetch_ms"] for run in runs), "cpu_ms": cpu}), flush=True)
    return runs


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", default=str(ROOT / "build/release/bin/winnow"))
    parser.add_argument("--model", default="assets/dms-cr8")
    parser.add_argument("--rules", nargs="+", default=["dense", "dms"])
    parser.add_argument("--tokens", type=int, default=4352)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--devices", nargs=2, default=["cpu", "cpu"], metavar=("PREFILL", "DECODE"),
                        help="where the prefill server computes, and where the other two (default: cpu cpu)")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("serve", nargs="*", help="flags of winnow serve")
    args = parser.parse_args()
    name = args.model
    with tempfile.TemporaryDirectory() as folder:
        args.model = with_positions(name, args.tokens + 1, folder)
        runs = [run for rule in args.rules for run in measure(rule, args)]
    if args.out:
        head = json.dumps({"date": datetime.date.today().isoformat(), "machine": machine(), "model": name,
                           "tokens": args.tokens, "devices": args.devices, "serve": args.serve}, indent=1)
        rows = ",\n  ".join(json.dumps(run) for run in runs)
        args.out.write_text(f'{head[:-2]},\n "runs": [\n  {rows}\n ]\n}}\n')


if __name__ == "__main__":
    main()
