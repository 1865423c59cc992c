"""Training windows (pieces.py) as batches of tensors."""

from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from pieces import WindowSource


class Windows(IterableDataset):
    """Endless (inputs, targets, weights of the targets), `length` tokens each."""

    def __init__(self, tokens: Path, tokenizer: Path, gsm8k: Path, length: int, mix, seed: int):
        self.files, self.length, self.mix, self.seed = (tokens, tokenizer, gsm8k), length, mix, seed

    def __iter__(self):
        torch.set_num_threads(1)
        worker = get_worker_info()
        source = WindowSource(*self.files, self.length, f"{self.seed} {worker.id if worker else 0}")
        while True:
            piece = source.draw(self.mix)
            ids = torch.tensor(piece.ids, dtype=torch.int64)
            weights = torch.tensor(piece.weights, dtype=torch.float32)
            yield ids[:-1], ids[1:], weights[1:]


def loader(windows: Windows, batch: int, workers: int):
    """Endless batches of (inputs, targets, weights)."""
    return iter(
        DataLoader(
            windows,
            batch_size=batch,
            num_workers=workers,
            pin_memory=torch.cuda.is_available(),
            prefetch_factor=4 if workers else None,
        )
    )


def contexts(stream: np.ndarray, bos: int, length: int) -> torch.Tensor:
    """Non-overlapping contexts of `length` tokens: `<|begin_of_text|>`, then length - 1 of the stream."""
    count = len(stream) // (length - 1)
    body = torch.from_numpy(stream[: count * (length - 1)].astype(np.int64)).view(count, length - 1)
    return torch.nn.functional.pad(body, (1, 0), value=bos)
