"""llama.cpp on a shape with random weights: prefill and decode tokens/s at a depth of context.

    pip install llama-cpp-python gguf numpy
    python llama_cpp_peer.py --type bf16 --depth 0 8192 --threads 2

Measured as llama-bench does: the cache is filled to the depth, then a prompt of --prefill tokens,
then, from the depth again, --decode single tokens. With --parallel C, each of C sequences then gets
a copy of the filled cache, and --decode steps take one token of each, as the server's parallel
slots do. Prints one JSON object per depth.
"""

import argparse
import ctypes
import json
import statistics
import tempfile
import time
from pathlib import Path

import gguf
import llama_cpp
import numpy as np

SHAPES = {
    "smollm2-135m": dict(hidden=576, layers=30, heads=9, kv_heads=3, head_dim=64,
                         intermediate=1536, vocab=49152, theta=100000.0),
    "llama-3.2-1b": dict(hidden=2048, layers=16, heads=32, kv_heads=8, head_dim=64,
                         intermediate=8192, vocab=128256, theta=500000.0),
}
TYPES = {
    "f16": gguf.GGMLQuantizationType.F16,
    "bf16": gguf.GGMLQuantizationType.BF16,
    "q8_0": gguf.GGMLQuantizationType.Q8_0,
    "q4_0": gguf.GGMLQuantizationType.Q4_0,
}


def write_model(path: Path, shape: dict, kind: str, context: int) -> None:
    """A llama GGUF with uniform random weights in the given type, tied embeddings."""
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(context)
    writer.add_embedding_length(shape["hidden"])
    writer.add_block_count(shape["layers"])
    writer.add_feed_forward_length(shape["intermediate"])
    writer.add_head_count(shape["heads"])
    writer.add_head_count_kv(shape["kv_heads"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(shape["theta"])
    writer.add_rope_dimension_count(shape["head_dim"])
    writer.add_vocab_size(shape["vocab"])
    writer.add_tokenizer_model("no_vocab")

    def matrix(name: str, rows: int, cols: int) -> None:
        spread = np.sqrt(3.0 / cols)
        values = rng.uniform(-spread, spread, (rows, cols)).astype(np.float32)
        writer.add_tensor(name, gguf.quants.quantize(values, TYPES[kind]), raw_dtype=TYPES[kind])

    def norm(name: str) -> None:
        writer.add_tensor(name, np.ones(shape["hidden"], np.float32))

    query, key = shape["heads"] * shape["head_dim"], shape["kv_heads"] * shape["head_dim"]
    matrix("token_embd.weight", shape["vocab"], shape["hidden"])
    norm("output_norm.weight")
    for i in range(shape["layers"]):
        norm(f"blk.{i}.attn_norm.weight")
        matrix(f"blk.{i}.attn_q.weight", query, shape["hidden"])
        matrix(f"blk.{i}.attn_k.weight", key, shape["hidden"])
        matrix(f"blk.{i}.attn_v.weight", key, shape["hidden"])
        matrix(f"blk.{i}.attn_output.weight", shape["hidden"], query)
        norm(f"blk.{i}.ffn_norm.weight")
        matrix(f"blk.{i}.ffn_gate.weight", shape["intermediate"], shape["hidden"])
        matrix(f"blk.{i}.ffn_up.weight", shape["intermediate"], shape["hidden"])
        matrix(f"blk.{i}.ffn_down.weight", shape["hidden"], shape["intermediate"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Session:
    """One llama.cpp context of `parallel` sequences that tokens are fed to."""

    def __init__(self, path: Path, context: int, parallel: int, threads: int) -> None:
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(
            str(path).encode(), llama_cpp.llama_model_default_params())
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = context * parallel, 512, 512
        params.n_seq_max = self.parallel = parallel
        params.n_threads = params.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        self.memory = llama_cpp.llama_get_memory(self.context)

    def feed(self, count: int) -> float:
        """Feeds `count` arbitrary tokens in batches of 512; returns the seconds it took."""
        tokens = (llama_cpp.llama_token * count)(*[(7 * i + 11) % 1000 for i in range(count)])
        start = time.perf_counter()
        for first in range(0, count, 512):
            part = min(512, count - first)
            pointer = ctypes.cast(ctypes.byref(tokens, first * 4),
                                  ctypes.POINTER(llama_cpp.llama_token))
            if llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(pointer, part)):
                raise RuntimeError("llama_decode failed")
        llama_cpp.llama_synchronize(self.context)
        return time.perf_counter() - start

    def truncate(self, length: int) -> None:
        llama_cpp.llama_memory_seq_rm(self.memory, 0, length, -1)

    def copy_first(self) -> None:
        """Gives every other sequence what the first holds."""
        for other in range(1, self.parallel):
            llama_cpp.llama_memory_seq_rm(self.memory, other, 0, -1)
            llama_cpp.llama_memory_seq_cp(self.memory, 0, other, 0, -1)

    def step(self, position: int) -> float:
        """Feeds one token to every sequence; returns the seconds it took."""
        batch = llama_cpp.llama_batch_init(self.parallel, 0, 1)
        batch.n_tokens = self.parallel
        for i in range(self.parallel):
            batch.token[i], batch.pos[i], batch.logits[i] = (7 * i + 11) % 1000, position, 1
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, i
        start = time.perf_counter()
        if llama_cpp.llama_decode(self.context, batch):
            raise RuntimeError("llama_decode failed")
        llama_cpp.llama_synchronize(self.context)
        seconds = time.perf_counter() - start
        llama_cpp.llama_batch_free(batch)
        return seconds


def measure_parallel(session: Session, depth: int, decode: int, repeat: int) -> float:
    """Tokens/s of all sequences while each decodes from `depth` on."""
    rates = []
    for _ in range(repeat):
        session.truncate(depth)
        session.copy_first()
        session.step(depth)  # warm-up; copies take effect here
        rates.append(decode * session.parallel
                     / sum(session.step(depth + 1 + i) for i in range(decode)))
    return statistics.median(rates)


def measure(session: Session, depth: int, prefill: int, decode: int, repeat: int) -> dict:
    session.truncate(0)
    if depth:
        session.feed(depth)
    session.feed(prefill)  # warm-up
    session.truncate(depth)
    prefill_rates, decode_rates = [], []
    for _ in range(repeat):
        prefill_rates.append(prefill / session.feed(prefill))
        session.truncate(depth)
        decode_rates.append(decode / sum(session.feed(1) for _ in range(decode)))
        session.truncate(depth)
    result = {"prefill_tokens_per_s": statistics.median(prefill_rates),
              "decode_tokens_per_s": statistics.median(decode_rates)}
    if session.parallel > 1 and depth:
        result["parallel_decode_tokens_per_s"] = measure_parallel(session, depth, decode, repeat)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shape", choices=SHAPES, default="smollm2-135m")
    parser.add_argument("--type", choices=TYPES, default="bf16")
    parser.add_argument("--depth", type=int, nargs="+", default=[0, 8192])
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--decode", type=int, default=32)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--parallel", type=int, default=1, help="sequences that decode together")
    args = parser.parse_args()
    context = max(args.depth) + args.prefill + args.decode + 64
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        write_model(path, SHAPES[args.shape], args.type, context)
        session = Session(path, context, args.parallel, args.threads)
        for depth in args.depth:
            result = measure(session, depth, args.prefill, args.decode, args.repeat)
            print(json.dumps({"engine": "llama.cpp", "version": llama_cpp.__version__,
                              "shape": args.shape, "type": args.type, "threads": args.threads,
                              "parallel": args.parallel, "depth": depth, **result}), flush=True)


if __name__ == "__main__":
    main()
