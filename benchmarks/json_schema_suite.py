#!/usr/bin/env python3
"""Whether answers are valid under the schemas of a test suite. DIR holds files as those of JSON Schema's own suite
(tests/draft2020-12: lists of {"schema", "tests"}), or one schema each. For every schema the demo model, which knows
nothing of JSON, answers several times at a high temperature; jsonschema[format] (PyPI) checks each answer that ended by
itself, with ECMAScript's patterns (regress, PyPI) and decimal numbers. Starts the server itself.

  benchmarks/json_schema_suite.py DIR --answers 8 --out FILE.json -- [serve flags]"""
import argparse
import asyncio
import collections
import datetime
import decimal
import json
import pathlib
import time

import jsonschema
import regress
from serving_load import ROOT, Server, machine, request


class EcmaPatterns:
    """What jsonschema searches with: JSON Schema's patterns are ECMAScript's, not Python's."""
    @staticmethod
    def search(pattern, text):
        return regress.Regex(pattern, "u").find(text)


for module in (jsonschema._keywords, jsonschema._utils):
    module.re = EcmaPatterns


decimal.getcontext().prec = 1000


def number(text):
    """As it is written, so that what is a multiple is one exactly; a float where that would have too many digits."""
    try:
        exact = decimal.Decimal(text)
    except decimal.InvalidOperation:  # an exponent of many digits
        return float(text)
    return exact if abs(exact.adjusted()) < 400 else float(text)


def decimals(text):
    return json.loads(text, parse_float=number)


def schemas(folder):
    for path in sorted(folder.rglob("*.json")):
        content = json.loads(path.read_text())
        groups = content if isinstance(content, list) else [{"schema": content}]
        for i, group in enumerate(groups):
            if isinstance(group, dict) and "schema" in group:
                yield f"{path.relative_to(folder)}[{i}] {group.get('description', '')}".strip(), group["schema"]


async def ask(port, schema, args):
    begin = time.monotonic()
    _, reader, writer = await request(port, "POST", "/v1/completions", {
        "prompt": "Go on.", "n": args.answers, "seed": 1, "temperature": args.temperature,
        "max_tokens": args.max_tokens, "structured_outputs": {"json": schema}})
    answer = json.loads(await reader.read())
    writer.close()
    return answer, time.monotonic() - begin


def judge(schema, choices):
    """How many answers ended, and those of them that are not valid."""
    checker = jsonschema.Draft202012Validator(decimals(json.dumps(schema)),
                                              format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    ended = [choice["text"] for choice in choices if choice["finish_reason"] == "stop"]
    wrong = []
    for text in ended:
        try:
            checker.validate(decimals(text))
        except (jsonschema.ValidationError, ValueError, RecursionError) as error:
            wrong.append({"answer": text, "error": str(error).splitlines()[0]})
    return len(ended), wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--binary", default=str(ROOT / "build/release/bin/winnow"))
    parser.add_argument("--model", default="assets/dms-cr8")
    parser.add_argument("--answers", type=int, default=8, help="of each schema")
    parser.add_argument("--max-tokens", type=int, default=150)
    parser.add_argument("--temperature", type=float, default=1.5)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("serve", nargs="*", help="flags of winnow serve")
    args = parser.parse_args()
    server = Server(args.binary, args.serve, args.model)
    rows, reasons, seconds = [], collections.Counter(), []
    try:
        for name, schema in schemas(args.folder):
            answer, took = asyncio.run(ask(server.port, schema, args))
            if "error" in answer:
                reason = answer["error"]["message"]
                reasons[reason] += 1
                rows.append({"schema": name, "refused": reason})
                continue
            ended, wrong = judge(schema, answer["choices"])
            seconds.append(took)
            rows.append({"schema": name, "ended": ended, "wrong": wrong})
    finally:
        server.stop()
    taken = [row for row in rows if "ended" in row]
    summary = {"schemas": len(rows), "refused": len(rows) - len(taken),
               "answers": len(taken) * args.answers, "ended": sum(row["ended"] for row in taken),
               "wrong": sum(len(row["wrong"]) for row in taken),
               "schemas without an ended answer": sum(row["ended"] == 0 for row in taken)}
    print(json.dumps(summary))
    for row in taken:
        for wrong in row["wrong"]:
            print(row["schema"], json.dumps(wrong))
    for reason, count in reasons.most_common(40):
        print(count, reason)
    if args.out:
        settings = {name: getattr(args, name) for name in ("model", "answers", "max_tokens", "temperature", "serve")}
        args.out.write_text(json.dumps({"date": datetime.date.today().isoformat(), "machine": machine(), **settings,
                                        "jsonschema": jsonschema.__version__, "summary": summary, "rows": rows},
                                       indent=1) + "\n")


if __name__ == "__main__":
    main()
