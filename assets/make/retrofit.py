"""Retrofits a model with DMS by logit distillation from the base model.

    python retrofit.py --base base/ --target-cr 8 --out dms-cr8/ ...

Phase 1 fades the borrowed channel out while the decision rows are zero, so the student starts as the
teacher. Phase 2 raises the share of evicted keys to its target and holds it there, by a price on every
key kept that rises while too many are kept: heads whose far keys are worth least sell them first.
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
from evaluate import measure_text
from model import Dms, Llama
from pretrain import learning_rate_factor

LOGIT_LIMIT = 6.0
EXCESS_WEIGHT = 1e-3
PRICE_GAIN = 4.0  # nats per token, per unit of share short of the target
PRICE_RATE = 0.04  # the same, per step
MIX = (0.52, 0.38, 0.10)  # text, recall, problems


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--gsm8k", type=Path, required=True)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--metrics", type=Path, required=True)
    parser.add_argument("--target-cr", type=float, default=8.0)
    parser.add_argument("--fade-steps", type=int, default=80)
    parser.add_argument("--ramp-steps", type=int, default=500)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--shift", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--micro", type=int, default=16)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--decision-lr", type=float, default=1e-5)
    parser.add_argument("--final-offset", type=float, default=5.5, help="of the model written; training uses 5")
    parser.add_argument("--warmup", type=int, default=30)
    parser.add_argument("--decay-share", type=float, default=0.5)
    parser.add_argument("--validate-every", type=int, default=500)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--seed", type=int, default=2)
    return parser.parse_args()


def share_to_evict(step: int, ramp_steps: int, target_cr: float) -> float:
    """Rises to 1 - 1/CR along a parabola: quickly while eviction is cheap, slowly where it hurts."""
    remaining = max(0.0, 1.0 - step / ramp_steps) if ramp_steps else 0.0
    return (1 - 1 / target_cr) * (1 - remaining**2)


class Price:
    """Of one key kept, in nats per token over the share of keys: a Lagrange multiplier under PI control.

    A fixed large weight on the shortfall would move all heads at once, whatever each one's keys are worth.
    """

    def __init__(self):
        self.settled = 0.0

    def of(self, shortfall: float) -> float:
        self.settled = max(0.0, self.settled + PRICE_RATE * shortfall)
        return max(0.0, self.settled + PRICE_GAIN * shortfall)


def distillation_loss(
    student: Llama, teacher: Llama, inputs: Tensor, weights: Tensor, fade: Tensor, blocks
) -> tuple[Tensor, Tensor, Tensor]:
    """KL(teacher || student) in nats per token, the share of evicted keys, and the decisions' excess.

    The excess keeps logits within +-LOGIT_LIMIT: beyond, neither loss could call a head back.

    The vocabulary is small enough to hold both models' logits of a micro-batch.
    """
    with torch.no_grad():
        expected = F.log_softmax(teacher(inputs)[0], dim=-1)
    logits, decisions = student(inputs, fade, blocks)
    excess = (decisions.logit.abs() - LOGIT_LIMIT).clamp(min=0).square().mean()
    divergence = (expected.exp() * (expected - F.log_softmax(logits, dim=-1))).sum(-1)
    return (divergence * weights).sum() / weights.sum(), decisions.alpha.mean(), excess


def main() -> None:
    args = parse_arguments()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")

    tokenizer_file = args.base / "tokenizer.json"
    windows = data.Windows(args.data / "train.npz", tokenizer_file, args.gsm8k, args.length, MIX, args.seed)
    batches = data.loader(windows, args.micro, args.workers)
    valid = dict(np.load(args.data / "valid.npz"))

    dms = Dms(window=args.window, shift=args.shift)
    teacher = export.load(args.base).to(device).eval().requires_grad_(False)
    student = export.load(args.base, retrofit=dms).to(device).train()

    rows = [p for n, p in student.named_parameters() if n.endswith("dms_row")]
    matrices = [p for n, p in student.named_parameters() if p.dim() == 2 and not n.endswith("dms_row")]
    norms = [p for p in student.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "lr": args.lr, "weight_decay": 0.0},
            {"params": norms, "lr": args.lr, "weight_decay": 0.0},
            {"params": rows, "lr": args.decision_lr, "weight_decay": 0.0},
        ],
        betas=(0.9, 0.95),
        fused=device == "cuda",
    )
    peaks = [args.lr, args.lr, args.decision_lr]

    loss_of, blocks = distillation_loss, None
    if device == "cuda":
        loss_of = torch.compile(distillation_loss)
        blocks = attention.causal_blocks(args.length, device)

    args.metrics.parent.mkdir(parents=True, exist_ok=True)
    log = open(args.metrics, "w")

    def record(fields: dict) -> None:
        print(json.dumps(fields), flush=True)
        print(json.dumps(fields), file=log, flush=True)

    price, evicted_before = Price(), 0.0
    began, mark, mark_step = time.time(), time.time(), 0
    for step in range(args.steps + 1):
        if step == args.steps:
            student.config.dms.offset = args.final_offset  # keys of doubtful worth stay
        if step == args.steps or (step and step % args.validate_every == 0):
            student.eval()
            record({"step": step, "valid": measure_text(teacher, student, valid, args.length, count=4)["all"]})
            student.train()
            export.save(student, args.out, args.base, args.target_cr)
        if step == args.steps:
            break
        fade = torch.tensor(max(0.0, 1.0 - step / args.fade_steps) if args.fade_steps else 0.0, device=device)
        target = share_to_evict(max(0, step - args.fade_steps), args.ramp_steps, args.target_cr)
        factor = learning_rate_factor(step, args.steps, args.warmup, args.decay_share)
        for group, peak in zip(optimizer.param_groups, peaks):
            group["lr"] = peak * factor
        if step < args.fade_steps:
            optimizer.param_groups[2]["lr"] = 0.0  # the decisions wait for phase 2
        paid = price.of(target - evicted_before)
        totals = torch.zeros(2, device=device)
        parts = args.batch // args.micro
        for _ in range(parts):
            inputs, _, weights = (t.to(device, non_blocking=True) for t in next(batches))
            with torch.autocast(device, dtype=torch.bfloat16):
                divergence, evicted, excess = loss_of(student, teacher, inputs, weights, fade, blocks)
            loss = divergence - paid * evicted + EXCESS_WEIGHT * excess
            (loss / parts).backward()
            totals += torch.stack([divergence.detach(), evicted.detach()]) / parts
        # Apart, because the decision scale of 100 makes the rows' gradients large.
        norm = torch.nn.utils.clip_grad_norm_(matrices + norms, 1.0)
        torch.nn.utils.clip_grad_norm_(rows, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        divergence, evicted_before = totals.tolist()
        if step % 20 == 19 or step < 3:
            rate = (step + 1 - mark_step) * args.batch * args.length / (time.time() - mark)
            mark, mark_step = time.time(), step + 1
            record(
                {
                    "step": step + 1,
                    "kl": round(divergence, 5),
                    "evicted": round(evicted_before, 4),
                    "target": round(target, 4),
                    "price": round(paid, 4),
                    "gradient_norm": round(norm.item(), 3),
                    "tokens_per_second": round(rate),
                    "seconds": round(time.time() - began, 1),
                }
            )


if __name__ == "__main__":
    main()
