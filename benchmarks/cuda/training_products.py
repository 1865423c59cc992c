"""What the products of one training update take by themselves, without anything between them.

    pip install torch
    python3 benchmarks/cuda/training_products.py

The shape of Llama 3.2 1B, 16,384 tokens: the student's products forward and backward, the teacher's forward, by
PyTorch (cuBLAS), operands in bf16 and normally distributed, gradients of weights and logits in fp32. Once after a
second's rest, three times, and twenty times in a row, which brings the device to its power limit: seconds per update.
"""

import json
import time

import torch

TOKENS, CHUNK, LAYERS, VOCAB = 16384, 2048, 16, 128256
HIDDEN, QKV, MLP, GATE_UP = 2048, 3072, 8192, 16384
LINEAR = ((QKV, HIDDEN), (HIDDEN, HIDDEN), (GATE_UP, HIDDEN), (HIDDEN, MLP))  # outputs, inputs


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def exact(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    torch.mm(a, b, out_dtype=torch.float32, out=out)


class Update:
    def __init__(self) -> None:
        widths = (HIDDEN, QKV, GATE_UP, MLP)
        self.x = {n: random(TOKENS, n) for n in widths}
        self.out = {n: torch.empty_like(x) for n, x in self.x.items()}
        self.weights = {(o, i): random(o, i) * i**-0.5 for o, i in LINEAR}
        self.dweights = {shape: torch.empty(shape, device="cuda") for shape in LINEAR}
        self.head, self.dlogits = random(VOCAB, HIDDEN) * HIDDEN**-0.5, random(CHUNK, VOCAB)
        self.logits = torch.empty(CHUNK, VOCAB, device="cuda")
        self.dhead = torch.empty(VOCAB, HIDDEN, device="cuda")
        self.dchunk = torch.empty(CHUNK, HIDDEN, device="cuda", dtype=torch.bfloat16)

    def run(self) -> None:
        for _ in range(2 * LAYERS):  # teacher and student
            for (o, i), w in self.weights.items():
                torch.mm(self.x[i], w.t(), out=self.out[o])
        for part in self.x[HIDDEN].split(CHUNK):
            for _ in range(2):
                exact(part, self.head.t(), self.logits)
            torch.mm(self.dlogits, self.head, out=self.dchunk)
            exact(self.dlogits.t(), part, self.dhead)
        for _ in range(LAYERS):
            for (o, i), w in self.weights.items():
                torch.mm(self.x[o], w, out=self.out[i])
                exact(self.x[o].t(), self.x[i], self.dweights[o, i])

    def seconds(self, count: int) -> list[float]:
        events = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        events[0].record()
        for event in events[1:]:
            self.run()
            event.record()
        torch.cuda.synchronize()
        return [a.elapsed_time(b) / 1e3 for a, b in zip(events, events[1:])]


def main() -> None:
    update = Update()
    update.seconds(1)
    rested = []
    for _ in range(3):
        time.sleep(1.0)
        rested += update.seconds(1)
    flops = 8.0 * TOKENS * (LAYERS * sum(o * i for o, i in LINEAR) + VOCAB * HIDDEN)
    print(json.dumps({"flops": flops, "rested": rested, "lasting": update.seconds(20),
                      "torch": torch.__version__, "device": torch.cuda.get_device_name()}))


if __name__ == "__main__":
    main()
