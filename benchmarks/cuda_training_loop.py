"""Retrofitting on a CUDA device: winnow's loop against PyTorch's, in one run on one device.

    pip install torch
    make bench
    python benchmarks/cuda_training_loop.py --output docs/results/training-cuda.json

The same work in both, on the shape of Llama 3.2 1B with random weights and tokens: DMS with a borrowed channel,
all weights trained, distillation from the model as it was; --sequences of --length tokens per update, AdamW,
clipping, products in bf16, nothing recomputed. PyTorch runs NVIDIA's recipe, FlexAttention with causality and bias
as a score modification, and the best that FlexAttention can do, with a causal block mask. Both have what helps
besides: decoder layer and loss are compiled, the teacher uses scaled_dot_product_attention, parameters and moments are
in bf16 (winnow's in fp32), AdamW is PyTorch's fused one. Seconds per update: the median of --updates, after two
that compile and record.
"""

import argparse
import datetime
import json
import statistics
import subprocess
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

ROOT = Path(__file__).resolve().parent.parent
HIDDEN, LAYERS, HEADS, KV_HEADS, DIM, MLP, VOCAB = 2048, 16, 32, 8, 64, 8192, 128256
GROUP = HEADS // KV_HEADS
SCALE, OFFSET, TAU = 100.0, 5.0, 0.1


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    low, high = x.chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(HIDDEN, (HEADS + 2 * KV_HEADS) * DIM, bias=False)
        self.output = nn.Linear(HEADS * DIM, HIDDEN, bias=False)
        self.gate_up = nn.Linear(HIDDEN, 2 * MLP, bias=False)
        self.down = nn.Linear(MLP, HIDDEN, bias=False)
        self.attention_norm = nn.RMSNorm(HIDDEN, eps=1e-5)
        self.mlp_norm = nn.RMSNorm(HIDDEN, eps=1e-5)

    def heads(self, x: torch.Tensor) -> list[torch.Tensor]:
        batch, length, _ = x.shape
        parts = self.qkv(self.attention_norm(x)).split((HEADS * DIM, KV_HEADS * DIM, KV_HEADS * DIM), dim=-1)
        return [p.view(batch, length, -1, DIM).transpose(1, 2) for p in parts]

    def rest(self, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        x = x + self.output(attended.transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)

    def student(self, x, cos, sin, noise, window, mask):
        q, k, v = self.heads(x)
        logits = SCALE * q[:, ::GROUP, :, -1].float() - OFFSET
        z = (logits + noise) / TAU
        bias = F.pad(F.logsigmoid(-z)[..., 1:], (0, 1))  # the next token decides
        keep = torch.ones(HEADS, 1, DIM, device=x.device, dtype=x.dtype)
        keep[::GROUP, :, -1] = 0.0
        q, k = rotate(q * keep, cos, sin) * keep, rotate(k, cos, sin)

        def score_mod(score, b, h, i, j):
            score = torch.where(i - j > window, score + bias[b, h // GROUP, j], score)
            return score if mask is not None else torch.where(i >= j, score, -float("inf"))

        attended = flex_attention(q, k, v, score_mod=score_mod, block_mask=mask, enable_gqa=True)
        return self.rest(x, attended), torch.sigmoid(z).mean()

    def teacher(self, x, cos, sin):
        q, k, v = self.heads(x)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        return self.rest(x, F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(HIDDEN, eps=1e-5)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(self.norm(x), self.embedding.weight)


def divergence(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    expected = F.log_softmax(teacher.float(), dim=-1)
    return (expected.exp() * (expected - F.log_softmax(student.float(), dim=-1))).sum(-1).mean()


def run_torch(args: argparse.Namespace, masked: bool) -> dict:
    torch.compiler.reset()
    torch.cuda.reset_peak_memory_stats()
    torch.manual_seed(0)
    device = torch.device(args.device)
    torch.set_default_dtype(torch.bfloat16)
    with device:
        student, teacher = Model(), Model()
    teacher.load_state_dict(student.state_dict())
    teacher.requires_grad_(False)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-5, betas=(0.9, 0.95), eps=1e-5, fused=True)
    frequencies = 5e5 ** (-torch.arange(0, DIM, 2, dtype=torch.float32) / DIM)
    angles = torch.outer(torch.arange(args.length, dtype=torch.float32), frequencies).to(device)
    cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
    mask = None
    if masked:
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, args.length, args.length, device=args.device)
    student_layer, teacher_layer = torch.compile(Layer.student), torch.compile(Layer.teacher)
    loss_of = torch.compile(divergence)
    tokens = torch.randint(0, VOCAB, (args.sequences, args.length), device=device)
    seconds = []
    for _ in range(2 + args.updates):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for part in tokens.split(args.micro_batch):
            with torch.no_grad():
                x = teacher.embedding(part)
                for layer in teacher.layers:
                    x = teacher_layer(layer, x, cos, sin)
                expected = teacher.logits(x)
            x, marked = student.embedding(part), 0.0
            for layer in student.layers:
                uniform = torch.rand(part.shape[0], KV_HEADS, args.length, device=device, dtype=torch.float32)
                noise = torch.logit(uniform, eps=1e-6)
                x, share = student_layer(layer, x, cos, sin, noise, args.window, mask)
                marked = marked + share
            loss = loss_of(student.logits(x), expected) - 0.01 * marked
            del expected
            loss.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        seconds.append(time.perf_counter() - begin)
    typical = statistics.median(seconds[2:])
    return {"seconds": seconds, "tokens_per_second": args.sequences * args.length / typical,
            "bytes": torch.cuda.max_memory_allocated()}


def run_winnow(args: argparse.Namespace, **flags: object) -> dict:
    command = [str(args.binary.resolve())]
    for name, value in flags.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=ROOT / "build/release/benchmarks/cuda/training_benchmark")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--sequences", type=int, default=4)
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--updates", type=int, default=3)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    shape = {"length": args.length, "sequences": args.sequences, "micro_batch": args.micro_batch,
             "window": args.window, "updates": args.updates}
    results = {"winnow": run_winnow(args, shape="llama-3.2-1b", decisions="borrowed", **shape),
               "torch, causal block mask": run_torch(args, masked=True),
               "torch, NVIDIA's recipe": run_torch(args, masked=False)}
    own = results["winnow"]["tokens_per_second"]
    flops = results["winnow"]["tflops"] / own
    print("| | tokens/s | TFLOP/s | GiB | winnow is |\n|---|---|---|---|---|")
    for name, result in results.items():
        rate = result["tokens_per_second"]
        print(f"| {name} | {rate:.0f} | {rate * flops:.0f} | {result['bytes'] / 2**30:.1f} | {own / rate:.2f}x |")
    args.output.write_text(json.dumps({
        "date": datetime.date.today().isoformat(),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "shape": {**shape, "model": "llama-3.2-1b"},
        "results": results,
    }, indent=1) + "\n")



if __name__ == "__main__":
    main()
