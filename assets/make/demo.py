"""Writes the reference for other engines: greedy tokens and logits for the demo prompt.

    python demo.py --base base/ --student dms-cr8/ --prompt demo_prompt.txt --out demo_reference.json

Float32 arithmetic on the bf16 weights. The base is run by transformers, the student by this folder's
own implementation with hard decisions.
"""

import argparse
import json
from pathlib import Path

import torch

import export
from pieces import Encoder
from evaluate import live_entries

NEW_TOKENS = 64
TOP = 20


def top_logits(logits: torch.Tensor) -> dict:
    best = logits.topk(TOP)
    return {
        "ids": best.indices.tolist(),
        "logits": [round(x, 5) for x in best.values.tolist()],
        "logsumexp": round(logits.logsumexp(-1).item(), 5),
    }


def reference(logits_of, prompt: list[int], encoder: Encoder) -> dict:
    """`logits_of(tokens)` gives the logits at every position."""
    tokens = list(prompt)
    for _ in range(NEW_TOKENS):
        tokens.append(int(logits_of(tokens)[-1].argmax()))
    # Teacher-forced over prompt and continuation; the smallest lead says how firm the greedy choice is.
    logits = logits_of(tokens).cpu()
    greedy = logits[len(prompt) - 1 : -1].topk(2).values
    positions = [0, 63, 64, 65, 66, 127, 255, 511, 1023, 2047, len(prompt) - 1, len(tokens) - 2]
    return {
        "greedy_ids": tokens[len(prompt) :],
        "greedy_text": encoder.decode(tokens[len(prompt) :]),
        "smallest_lead": round((greedy[:, 0] - greedy[:, 1]).min().item(), 4),
        "next_token_logits": {str(p): top_logits(logits[p]) for p in positions if p < len(tokens)},
    }


@torch.no_grad()
def main() -> None:
    from transformers import AutoModelForCausalLM

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--student", type=Path, required=True)
    parser.add_argument("--prompt", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()

    encoder = Encoder(args.base / "tokenizer.json")
    prompt = [encoder.bos, *encoder(args.prompt.read_text())]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    base = AutoModelForCausalLM.from_pretrained(args.base, dtype=torch.float32).to(device).eval()
    student = export.load(args.student).to(device).eval()

    as_batch = lambda tokens: torch.tensor([tokens], device=device)
    report = {"prompt": args.prompt.name, "prompt_ids": prompt}
    report["base"] = reference(lambda tokens: base(as_batch(tokens)).logits[0], prompt, encoder)
    report["student"] = reference(lambda tokens: student(as_batch(tokens))[0][0], prompt, encoder)

    alphas, decision_logits = student(as_batch(prompt))[1]
    dms = student.config.dms
    live = live_entries(alphas, dms.window, dms.shift)[:, 0]
    report["student"]["live_entries_after_prompt"] = live.tolist()
    report["student"]["cr_after_prompt"] = round(len(prompt) / live.float().mean().item(), 3)
    report["student"]["closest_decision"] = round(decision_logits.abs().min().item(), 6)
    report["student"]["evictions_marked_per_layer_head"] = alphas.sum(-1)[:, 0].long().tolist()
    args.out.write_text(json.dumps(report) + "\n")
    for name in ("base", "student"):
        print(name, report[name]["smallest_lead"], repr(report[name]["greedy_text"]))
    print("CR after the prompt:", report["student"]["cr_after_prompt"])


if __name__ == "__main__":
    main()
