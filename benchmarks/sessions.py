#!/usr/bin/env python3
"""What a prompt's state costs on disk, and what it saves: generate --prompt-cache and serve
--cache-dir on the demo model, dense and DMS. Prints JSON.

    benchmarks/sessions.py [--winnow build/release/bin/winnow] [--runs 5] > docs/results/sessions.json

Times are of whole processes: wall, which other work on the machine stretches, and seconds of CPU,
which it hardly does."""
import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODEL = "assets/dms-cr8"
PROMPT = "assets/demo_prompt.txt"


def run(words):
    """Wall and CPU seconds of a command, and what it printed."""
    before = os.times()
    start = time.monotonic()
    result = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    wall = time.monotonic() - start
    after = os.times()
    cpu = (after.children_user + after.children_system -
           before.children_user - before.children_system)
    return wall, cpu, result.stdout


def generate(winnow, cache, more):
    wall, cpu, out = run([winnow, "generate", "--model", MODEL, "--prompt-file", PROMPT, "--cache",
                          cache, "--max-tokens", "1", "--threads", "1", "--json", *more])
    answer = json.loads(out)
    return {"wall_s": wall, "cpu_s": cpu, "prompt_tokens": answer["prompt_tokens"],
            "reused_tokens": answer["reused_tokens"], "token_ids": answer["token_ids"]}


def medians(runs):
    return {key: statistics.median(run[key] for run in runs) for key in ("wall_s", "cpu_s")}


def measure_generate(winnow, cache, runs, directory):
    state = str(directory / f"{cache}.state")
    generate(winnow, cache, ["--prompt-cache", state])
    computed, loaded = [], []
    for _ in range(runs):  # in turn: what else the machine does hits both
        computed.append(generate(winnow, cache, []))
        loaded.append(generate(winnow, cache, ["--prompt-cache", state, "--prompt-cache-ro"]))
    assert all(run["reused_tokens"] == run["prompt_tokens"] - 1 for run in loaded)
    return {"state_bytes": os.path.getsize(state),
            "prompt_tokens": loaded[0]["prompt_tokens"],
            "computed": medians(computed), "loaded": medians(loaded),
            "same_token": all(run["token_ids"] == computed[0]["token_ids"]
                              for run in computed + loaded),
            "runs": {"computed": computed, "loaded": loaded}}


class Server:
    def __init__(self, winnow, cache, more):
        self.process = subprocess.Popen(
            [winnow, "serve", "--model", MODEL, "--port", "0", "--threads", "1", "--log-level",
             "error", "--cache", cache, *more], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self.url = re.search(r"https?://\S+", self.process.stdout.readline()).group()

    def first_token(self, prompt):
        """Seconds until the one token that is asked for is there, and what was reused."""
        body = json.dumps({"prompt": prompt, "max_tokens": 1, "temperature": 0}).encode()
        request = urllib.request.Request(self.url + "/v1/completions", body,
                                         {"Content-Type": "application/json"})
        start = time.monotonic()
        with urllib.request.urlopen(request) as answer:
            usage = json.load(answer)["usage"]
        seconds = time.monotonic() - start
        return {"seconds": seconds, "prompt_tokens": usage["prompt_tokens"],
                "cached_tokens": usage["prompt_tokens_details"]["cached_tokens"]}

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0


def measure_server(winnow, cache, runs, directory):
    """The first answer after a restart, to a question about a text that was asked about before."""
    text = (ROOT / PROMPT).read_text().rsplit("Question:", 1)[0]
    with_directory = ["--cache-dir", str(directory / f"{cache}-states")]
    server = Server(winnow, cache, with_directory)
    for name in ("Ada", "Ben"):
        server.first_token(text + "Question: who is " + name)
    server.stop()
    files = [file.stat().st_size for file in (directory / f"{cache}-states").iterdir()]
    computed, loaded = [], []
    for i in range(runs):
        for flags, results in (([], computed), (with_directory, loaded)):
            server = Server(winnow, cache, flags)
            results.append(server.first_token(f"{text}Question: who was number {i}"))
            server.stop()
    return {"files_after_two_questions": files,
            "computed_s": statistics.median(run["seconds"] for run in computed),
            "loaded_s": statistics.median(run["seconds"] for run in loaded),
            "runs": {"computed": computed, "loaded": loaded}}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--winnow", default=str(ROOT / "build/release/bin/winnow"))
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    result = {"model": MODEL, "prompt": PROMPT, "cores": os.cpu_count(),
              "load_average": os.getloadavg()}
    with tempfile.TemporaryDirectory() as name:
        for cache in ("dense", "dms"):
            directory = pathlib.Path(name)
            result[cache] = {
                "generate": measure_generate(arguments.winnow, cache, arguments.runs, directory),
                "serve": measure_server(arguments.winnow, cache, arguments.runs, directory)}
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
