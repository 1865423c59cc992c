"""Trains the base model: a plain dense Llama, with far dropout while training.

Far dropout: in all but FAR_HEADS, attention is limited to a window at random, per sequence. The model
learns to read far back with few heads and to need the others for near context only, so that little
depends on what a compressed cache forgets. The finished model is used with full attention everywhere.

    python pretrain.py --data tokens/ --tokenizer tokenizer/ --gsm8k gsm8k.train.jsonl --out base/
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

import attention
import data
import export
from model import Config, Llama
from pieces import RECALL_WEIGHT

FAR_HEADS = [(3, 0), (5, 0), (6, 1)]  # (layer, KV head) that always see everything
MIX = (0.50, 0.36, 0.14)  # text, recall, problems


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--gsm8k", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--metrics", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--micro", type=int, default=32)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--weight-decay", type=float, default=0.4)
    parser.add_argument("--warmup", type=int, default=60)
    parser.add_argument("--decay-share", type=float, default=0.5)
    parser.add_argument("--validate-every", type=int, default=200)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--far-dropout", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def learning_rate_factor(step: int, steps: int, warmup: int, decay_share: float) -> float:
    """Warm up, hold, decay linearly to zero."""
    remaining = (steps - step) / max(1.0, steps * decay_share)
    return min(1.0, (step + 1) / warmup, remaining)


def optimizers(model: Llama, lr: float, weight_decay: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for embeddings and norms."""
    matrices = [p for n, p in model.named_parameters() if p.dim() == 2 and ".layers." in n]
    embeddings = [model.model.embed_tokens.weight]
    norms = [p for p in model.parameters() if p.dim() == 1]
    adamw = torch.optim.AdamW(
        [{"params": embeddings, "weight_decay": weight_decay}, {"params": norms, "weight_decay": 0.0}],
        lr=lr,
        betas=(0.9, 0.95),
        fused=torch.cuda.is_available(),
    )
    muon = torch.optim.Muon(matrices, lr=lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
    return [adamw, muon]


def draw_far_dropout(config: Config, batch: int, device) -> Tensor:
    """Which heads are local, [layer, batch, KV head]: of the sequences, about 8 % none, 80 % all but
    FAR_HEADS, and in 12 % each one or not."""
    kind = torch.rand(1, batch, 1, device=device)
    coin = torch.rand(config.layers, batch, config.kv_heads, device=device) < 0.5
    local = torch.where(kind < 0.08, False, torch.where(kind < 0.88, True, coin))
    for layer, head in FAR_HEADS:
        if layer < config.layers:
            local[layer, :, head] = False
    return local


def weighted_loss(
    model: Llama, inputs: Tensor, targets: Tensor, weights: Tensor, blocks, local: Tensor | None
) -> Tensor:
    logits, _ = model(inputs, blocks=blocks, local=local)
    losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return (losses * weights.flatten()).sum() / weights.sum()


@torch.no_grad()
def validate(model: Llama, streams: dict, recall_batch, device, count: int = 12) -> dict[str, float]:
    """Loss on held-out text by source, and the share of recall tokens that greedy decoding gets right."""
    report = {}
    length = recall_batch[0].shape[1]
    for source, stream in streams.items():
        inputs = data.contexts(stream, 0, length)[:count].to(device)
        logits, _ = model(inputs)
        report[source] = F.cross_entropy(logits[:, :-1].flatten(0, 1), inputs[:, 1:].flatten()).item()
    inputs, targets, weights = (t.to(device) for t in recall_batch)
    hits = model(inputs)[0].argmax(-1) == targets
    report["recall"] = hits[weights == RECALL_WEIGHT].float().mean().item()
    return report


def main() -> None:
    args = parse_arguments()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")

    tokenizer_file = args.tokenizer / "tokenizer.json"
    source = lambda mix, seed: data.Windows(
        args.data / "train.npz", tokenizer_file, args.gsm8k, args.length, mix, seed
    )
    batches = data.loader(source(MIX, args.seed), args.micro, args.workers)
    recall_batch = next(data.loader(source((0, 1, 0), seed=10_000), min(16, args.micro), 0))
    valid = dict(np.load(args.data / "valid.npz"))

    model = Llama(Config(layers=args.layers)).to(device)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters")
    steppers = optimizers(model, args.lr, args.weight_decay)
    loss_of = torch.compile(weighted_loss) if device == "cuda" else weighted_loss
    blocks = attention.causal_blocks(args.length, device) if device == "cuda" else None
    autocast = lambda: torch.autocast(device, dtype=torch.bfloat16)

    args.metrics.parent.mkdir(parents=True, exist_ok=True)
    log = open(args.metrics, "w")
    began, mark, mark_step = time.time(), time.time(), 0
    for step in range(args.steps + 1):
        if step == args.steps or (step and step % args.validate_every == 0):
            with autocast():
                report = validate(model, valid, recall_batch, device)
            record = {"step": step, "valid": {k: round(v, 4) for k, v in report.items()}}
            print(json.dumps(record), flush=True)
            print(json.dumps(record), file=log, flush=True)
            export.save(model, args.out, args.tokenizer)
        if step == args.steps:
            break
        factor = learning_rate_factor(step, args.steps, args.warmup, args.decay_share)
        for stepper in steppers:
            for group in stepper.param_groups:
                group["lr"] = args.lr * factor
        total = torch.zeros((), device=device)
        parts = args.batch // args.micro
        for _ in range(parts):
            inputs, targets, weights = (t.to(device, non_blocking=True) for t in next(batches))
            with autocast():
                local = draw_far_dropout(model.config, len(inputs), device) if args.far_dropout else None
                loss = loss_of(model, inputs, targets, weights, blocks, local)
            (loss / parts).backward()
            total += loss.detach() / parts
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for stepper in steppers:
            stepper.step()
            stepper.zero_grad(set_to_none=True)
        if step % 20 == 19 or step < 3:
            loss_value = total.item()
            rate = (step + 1 - mark_step) * args.batch * args.length / (time.time() - mark)
            mark, mark_step = time.time(), step + 1
            record = {
                "step": step + 1,
                "loss": round(loss_value, 4),
                "lr": args.lr * factor,
                "tokens_per_second": round(rate),
                "seconds": round(time.time() - began, 1),
            }
            print(json.dumps(record), flush=True)
            print(json.dumps(record), file=log, flush=True)


if __name__ == "__main__":
    main()
