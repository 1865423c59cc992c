#!/usr/bin/env python3
"""Conversations that outgrow the cache, whose prefixes are kept in host memory or in --cache-dir, over ranks: how many
continue from a kept prefix, and which answers differ from those of one device without prefixes.

  benchmarks/kept_prefixes.py --ranks 2 [--kv-gib 0.06 0.012] [--model assets/dms-cr8] [--out FILE.jsonl] [-- serve flags]

For each rule, dense and dms: eight prompts, then each again with its answer and two more words. The same through a server
with --host-gib, one with --cache-dir, that server started again, and one device alone with the same directory. Differences
of rounding may change single answers; a kept state that were wrong would change most."""
import argparse
import asyncio
import json
import pathlib
import tempfile
import time
import urllib.request

from serving_load import ROOT, Server, metrics

WORDS = " ".join((ROOT / page).read_text() for page in ("docs/serving-production.md", "docs/serving-api.md", "docs/usage.md")).split()
PROMPTS = [" ".join(WORDS[600 * i:600 * (i + 1)]) for i in range(8)]


def ask(server, text):
    body = json.dumps({"prompt": text, "max_tokens": 12, "temperature": 0}).encode()
    asked = urllib.request.Request(f"http://127.0.0.1:{server.port}/v1/completions", body, {"Content-Type": "application/json"})
    begin = time.perf_counter()
    with urllib.request.urlopen(asked, timeout=600) as reply:
        answer = json.load(reply)
    return {"text": answer["choices"][0]["text"], "seconds": round(time.perf_counter() - begin, 4),
            "cached": answer["usage"]["prompt_tokens_details"]["cached_tokens"]}


def alone(args, rule):
    """The prompts of both rounds, and the answers of one device that keeps no prefixes."""
    server = Server(args.binary, ["--cache", rule, "--no-prefix-cache", *args.serve], args.model)
    try:
        first = [ask(server, prompt)["text"] for prompt in PROMPTS]
        prompts = PROMPTS + [f"{prompt}{text} And then" for prompt, text in zip(PROMPTS, first)]
        return prompts, first + [ask(server, prompt)["text"] for prompt in prompts[len(first):]]
    finally:
        server.stop()


def kept(args, rule, kv_gib, name, ranks, flags, prompts, wanted):
    ranked = ["--tensor-parallel", str(ranks)] if ranks > 1 else []
    server = Server(args.binary, ["--cache", rule, "--kv-gib", str(kv_gib), *flags, *ranked, *args.serve], args.model)
    try:
        answers = [ask(server, prompt) for prompt in prompts]
        found = {key: value for key, value in asyncio.run(metrics(server.port)).items()
                 if key.startswith(("winnow_host_", "winnow_stored_"))}
    finally:
        server.stop()
    return {"rule": rule, "kept in": name, "ranks": ranks,
            "continued": sum(answer["cached"] > 0 for answer in answers[len(PROMPTS):]),
            "other answers": [i for i, answer in enumerate(answers) if answer["text"] != wanted[i]],
            "cached": [answer["cached"] for answer in answers], "seconds": [answer["seconds"] for answer in answers],
            "metrics": found}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "build/release/bin/winnow"))
    parser.add_argument("--model", default="assets/dms-cr8")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--kv-gib", type=float, nargs=2, default=[0.06, 0.012], help="of the cache, dense and dms")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("serve", nargs="*", help="flags of winnow serve")
    args = parser.parse_args()
    rows = []
    for rule, kv_gib in zip(("dense", "dms"), args.kv_gib):
        prompts, wanted = alone(args, rule)
        with tempfile.TemporaryDirectory() as folder:
            directory = ["--cache-dir", folder]
            for name, ranks, flags in (("host memory", args.ranks, ["--host-gib", "2"]), ("a directory", args.ranks, directory),
                                       ("the directory, a new server", args.ranks, directory),
                                       ("the directory, one device", 1, directory)):
                rows.append(kept(args, rule, kv_gib, name, ranks, flags, prompts, wanted))
                print(json.dumps(rows[-1]), flush=True)
    if args.out:
        args.out.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
