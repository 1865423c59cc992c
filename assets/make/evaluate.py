"""Measures a model, and a DMS student against its base, with hard decisions and float32 arithmetic.

    python evaluate.py --base base/ [--student dms-cr8/] --data tokens/ --eval DIR --out results.json

- text: perplexity on held-out text in contexts of 4096 tokens; with a student also
  KLD = mean KL(base || student) in nats per token over the same contexts, and the compression ratio
  CR = T / mean live entries (over layers, KV heads and contexts) at the end of a context.
- recall: the answer must be exactly the expected sentence. A greedy answer equals the expected one iff
  each of its tokens is the argmax given the tokens before it, so one forward pass decides.
- problems: greedy decoding; the last number of the answer must be the result.
"""

import argparse
import json
import math
import re
from pathlib import Path
from random import Random

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import data
import export
import pieces
import tasks
from corpus import gsm8k_problems
from model import Llama

SEED = 987_654_321  # training seeds are small numbers


def live_entries(alphas: Tensor, window: int, shift: int) -> Tensor:
    """Entries in memory after the last token, [layer, batch, KV head]."""
    length = alphas.shape[-1]
    evicted = F.pad(alphas[..., shift:], (0, shift))
    recent = torch.arange(length, device=alphas.device) >= length - 1 - window
    return ((evicted == 0) | recent).sum(-1)


@torch.no_grad()
def measure_text(base: Llama, student: Llama | None, streams: dict, length: int, count: int | None = None, batch: int = 4):
    """Per stream and over all: perplexity, and with a student its perplexity, KLD and CR."""
    device = next(base.parameters()).device
    report, sums = {}, {}
    for name, stream in streams.items():
        windows = data.contexts(stream, 0, length)[:count]
        total = {"tokens": 0, "base": 0.0, "student": 0.0, "kld": 0.0}
        live = []
        for inputs in windows.split(batch):
            inputs = inputs.to(device)
            targets = inputs[:, 1:, None]
            expected = F.log_softmax(base(inputs)[0][:, :-1], dim=-1)
            total["tokens"] += targets.numel()
            total["base"] -= expected.gather(-1, targets).double().sum().item()
            if student:
                logits, decisions = student(inputs)
                got = F.log_softmax(logits[:, :-1], dim=-1)
                total["student"] -= got.gather(-1, targets).double().sum().item()
                total["kld"] += (expected.exp() * (expected - got)).sum(-1).double().sum().item()
                live.append(live_entries(decisions.alpha, student.config.dms.window, student.config.dms.shift).float())
        total["live"] = torch.cat(live, dim=1) if live else None
        sums[name] = total
        report[name] = summary(total, length)
    everything = {key: sum(s[key] for s in sums.values()) for key in ("tokens", "base", "student", "kld")}
    everything["live"] = torch.cat([s["live"] for s in sums.values()], dim=1) if student else None
    report["all"] = summary(everything, length)
    return report


def summary(total: dict, length: int) -> dict:
    tokens = total["tokens"]
    out = {"tokens": tokens, "base_perplexity": round(math.exp(total["base"] / tokens), 4)}
    if total["live"] is not None:
        live = total["live"]
        out["perplexity"] = round(math.exp(total["student"] / tokens), 4)
        out["perplexity_change_percent"] = round(100 * (math.exp((total["student"] - total["base"]) / tokens) - 1), 3)
        out["kld"] = round(total["kld"] / tokens, 5)
        out["cr"] = round(length / live.mean().item(), 3)
        out["cr_per_layer_head"] = [[round(length / x, 2) for x in row] for row in live.mean(1).tolist()]
    return out


class Suite:
    """The task suite of one model."""

    def __init__(self, model: Llama, encoder: pieces.Encoder, hay: np.ndarray):
        self.model, self.encoder, self.hay = model, encoder, hay
        self.device = next(model.parameters()).device

    def recall_prompt(self, rng: Random, facts: list[tuple[list[float], tasks.Fact]], question: str, length: int, answer_size: int) -> list[int]:
        """Facts at the given depths of a slice of the hay, then the question: `length` with the answer."""
        encoder = self.encoder
        hidden = [(d, pieces.sentence_piece(encoder, s)) for depths, fact in facts for d, s in zip(depths, fact.sentences)]
        asked = encoder(pieces.question_prompt(question))
        size = length - 1 - len(asked) - answer_size - sum(len(piece.ids) for _, piece in hidden)
        start = rng.randrange(len(self.hay) - size)
        return [encoder.bos, *pieces.hide(encoder, self.hay[start : start + size], hidden).ids, *asked]

    @torch.no_grad()
    def answers_exactly(self, cases: list[tuple[list[int], list[int]]], batch: int = 4) -> list[bool]:
        results = []
        for begin in range(0, len(cases), batch):
            part = cases[begin : begin + batch]
            longest = max(len(prompt) + len(answer) for prompt, answer in part)
            inputs = torch.zeros(len(part), longest, dtype=torch.int64)
            for row, (prompt, answer) in enumerate(part):
                inputs[row, : len(prompt) + len(answer)] = torch.tensor(prompt + answer)
            hidden, _ = self.model.hidden(inputs.to(self.device))
            for row, (prompt, answer) in enumerate(part):
                span = hidden[row, len(prompt) - 1 : len(prompt) + len(answer) - 1]
                results.append(self.model.logits(span).argmax(-1).tolist() == answer)
        return results

    def needle(self, lengths=(1024, 2048, 4096), depths=(0.02, 0.25, 0.5, 0.75, 0.95), repeats: int = 20) -> dict:
        rng = Random(SEED)
        keys, cases = [], []
        for length in lengths:
            for depth in depths:
                for _ in range(repeats):
                    fact = tasks.office_code(rng)
                    question, sentence = fact.questions[0]
                    answer = self.encoder(" " + sentence)
                    prompt = self.recall_prompt(rng, [([depth], fact)], question, length, len(answer))
                    keys.append((length, depth))
                    cases.append((prompt, answer))
        hits = self.answers_exactly(cases)
        grid = {
            str(length): {
                str(depth): np.mean([h for h, k in zip(hits, keys) if k == (length, depth)]).round(3) for depth in depths
            }
            for length in lengths
        }
        per_length = {str(n): np.mean([h for h, k in zip(hits, keys) if k[0] == n]).round(4) for n in lengths}
        return {"accuracy": np.mean(hits).round(4), "cases": len(hits), "by_length": per_length, "grid": grid}

    def many_facts(self, facts_per_text: int = 8, cases: int = 200, length: int = 4096) -> dict:
        """One question about one of several facts of all kinds, at random depths."""
        rng = Random(SEED + 1)
        simple = [f for f in tasks.FACTS if f is not tasks.variable_chain]
        prepared = []
        for _ in range(cases):
            facts = tasks.distinct_facts(rng, facts_per_text, draw=lambda r: r.choice(simple)(r))
            question, sentence = facts[0].questions[0]
            answer = self.encoder(" " + sentence)
            placed = [([rng.uniform(0, 0.99)], fact) for fact in facts]
            prepared.append((self.recall_prompt(rng, placed, question, length, len(answer)), answer))
        hits = self.answers_exactly(prepared)
        return {"accuracy": np.mean(hits).round(4), "cases": cases}

    def variable_tracking(self, cases: int = 50, length: int = 4096) -> dict:
        """A chain of 0 to 3 copies among two other chains."""
        report = {}
        for hops in range(4):
            rng = Random(SEED + 2 + hops)
            prepared = []
            for _ in range(cases):
                facts = tasks.distinct_facts(rng, 3, draw=lambda r: tasks.variable_chain(r, hops))
                question, text = facts[0].questions[-1]
                answer = self.encoder(" " + text)
                placed = [(sorted(rng.uniform(0, 0.99) for _ in fact.sentences), fact) for fact in facts]
                prepared.append((self.recall_prompt(rng, placed, question, length, len(answer)), answer))
            report[f"{hops}_copies"] = np.mean(self.answers_exactly(prepared)).round(4)
        return {"accuracy": np.mean(list(report.values())).round(4), "cases": 4 * cases, **report}

    @torch.no_grad()
    def generate(self, prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
        """Greedy decoding without a cache, until `<|end_of_text|>`."""
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=self.device)
        tokens = torch.zeros(len(prompts), int(lengths.max()) + new_tokens, dtype=torch.int64)
        for row, prompt in enumerate(prompts):
            tokens[row, : len(prompt)] = torch.tensor(prompt)
        tokens = tokens.to(self.device)
        rows = torch.arange(len(prompts), device=self.device)
        done = torch.zeros(len(prompts), dtype=torch.bool, device=self.device)
        for step in range(new_tokens):
            hidden, _ = self.model.hidden(tokens[:, : int(lengths.max()) + step])
            best = self.model.logits(hidden[rows, lengths + step - 1]).argmax(-1)
            tokens[rows, lengths + step] = best
            done |= best == self.encoder.eos
            if done.all():
                break
        answers = []
        for row, prompt in enumerate(prompts):
            answer = tokens[row, len(prompt) : len(prompt) + new_tokens].tolist()
            answers.append(answer[: answer.index(self.encoder.eos)] if self.encoder.eos in answer else answer)
        return answers

    def problems(self, problems: list[tasks.Problem], new_tokens: int, batch: int = 50) -> dict:
        hits, samples = [], []
        for begin in range(0, len(problems), batch):
            part = problems[begin : begin + batch]
            prompts = [[self.encoder.bos, self.encoder.user, *self.encoder(p.question), self.encoder.assistant] for p in part]
            for problem, answer in zip(part, self.generate(prompts, new_tokens)):
                text = self.encoder.decode(answer)
                numbers = re.findall(r"-?\d[\d,]*(?:\.\d+)?", text)
                hits.append(bool(numbers) and numbers[-1].rstrip(",") == problem.result)
                if len(samples) < 3:
                    samples.append({"question": problem.question, "answer": text})
        return {"accuracy": np.mean(hits).round(4), "cases": len(hits), "samples": samples}

    def all(self, gsm8k: Path) -> dict:
        draw = lambda make, seed: [make(Random(f"{SEED} {seed} {i}")) for i in range(200)]
        report = {
            "needle": self.needle(),
            "many_facts": self.many_facts(),
            "variable_tracking": self.variable_tracking(),
            "arithmetic": self.problems(draw(tasks.arithmetic, "arithmetic"), 110),
            "linear_equations": self.problems(draw(tasks.linear_equation, "equations"), 110),
            "word_problems": self.problems(draw(tasks.word_problem, "stories"), 110),
            "gsm8k_test": self.problems(list(gsm8k_problems(gsm8k))[:200], 200),
        }
        for name, result in report.items():
            print(name, {k: v for k, v in result.items() if k not in ("samples", "grid")}, flush=True)
        return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--student", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--gsm8k-test", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--length", type=int, default=4096)
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    load = lambda path: export.load(path).to(device).eval().requires_grad_(False)
    base, student = load(args.base), load(args.student) if args.student else None
    encoder = pieces.Encoder(args.base / "tokenizer.json")
    held_out = dict(np.load(args.data / "eval.npz"))
    streams = {**dict(np.load(args.data / "valid.npz")), "wikitext2": held_out["wikitext2"]}

    report = {"model": (args.student or args.base).name, "device": torch.cuda.get_device_name() if device == "cuda" else "cpu"}
    report["text"] = measure_text(base, student, streams, args.length)
    for name, result in report["text"].items():
        print(name, {k: v for k, v in result.items() if k != "cr_per_layer_head"}, flush=True)
    report["tasks"] = Suite(student or base, encoder, held_out["essays"]).all(args.gsm8k_test)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=1, default=float) + "\n")


if __name__ == "__main__":
    main()
