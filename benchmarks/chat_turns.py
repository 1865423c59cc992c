#!/usr/bin/env python3
"""How much of a chat's next prompt the prefix cache finds: with the assistant's messages handed back as text, and
with the token ids that they were generated as ("return_token_ids"). Starts the server itself.

  benchmarks/chat_turns.py --chats 9 --turns 7 --out FILE.json -- [serve flags]"""
import argparse
import asyncio
import datetime
import json
import pathlib

from serving_load import ROOT, Server, machine, request

QUESTIONS = ["Tell me of your day.", "And then?", "Who was there?", "What did they say?", "How did it end?",
             "What will you do tomorrow?", "Where is the ship?", "Why?"]


async def ask(port, messages, seed, args):
    _, reader, writer = await request(port, "POST", "/v1/chat/completions", {
        "messages": messages, "seed": seed, "temperature": args.temperature, "max_tokens": args.max_tokens,
        "return_token_ids": True})
    answer = json.loads(await reader.read())
    writer.close()
    return answer


async def chats(port, args, with_ids):
    """Of each turn but the first: the tokens of its prompt, those that the turn before has left in the cache (its
    prompt and its answer, which the new one begins with), and those that were found."""
    turns = []
    for chat in range(args.chats):
        messages, left = [], None
        for turn in range(args.turns):
            # Something of its own at the beginning, so that chats share nothing.
            question = f"({'with' if with_ids else 'without'} {chat}) " * (turn == 0) + QUESTIONS[turn % len(QUESTIONS)]
            messages.append({"role": "user", "content": question})
            answer = await ask(port, messages, 100 * chat + turn, args)
            usage, message = answer["usage"], answer["choices"][0]["message"]
            found = usage["prompt_tokens_details"]["cached_tokens"]
            if left is not None:
                turns.append({"prompt": usage["prompt_tokens"], "left": left, "found": found})
            left = usage["total_tokens"] - 1
            if not with_ids:
                message.pop("token_ids", None)
            messages.append(message)
    return turns


def summary(turns):
    return {"turns": len(turns), "found all": sum(t["found"] >= t["left"] for t in turns),
            "computed again": sum(max(0, t["left"] - t["found"]) for t in turns), "of": sum(t["left"] for t in turns)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", default=str(ROOT / "build/release/bin/winnow"))
    parser.add_argument("--model", default="assets/dms-cr8")
    parser.add_argument("--chats", type=int, default=9)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--max-tokens", type=int, default=120)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("serve", nargs="*", help="flags of winnow serve")
    args = parser.parse_args()
    server = Server(args.binary, args.serve, args.model)
    try:
        turns = {name: asyncio.run(chats(server.port, args, name == "token ids")) for name in ("text", "token ids")}
    finally:
        server.stop()
    for name, those in turns.items():
        print(name, json.dumps(summary(those)))
    if args.out:
        settings = {name: getattr(args, name) for name in ("model", "chats", "turns", "max_tokens", "temperature", "serve")}
        args.out.write_text(json.dumps({"date": datetime.date.today().isoformat(), "machine": machine(), **settings,
                                        **{name: {"summary": summary(those), "rows": those}
                                           for name, those in turns.items()}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
