"""vLLM on a shape with random weights: prefill and decode tokens/s, as winnow bench measures them.

    pip install vllm==0.26.0
    python vllm_peer.py --model Qwen/Qwen3-8B --prompt 8192 --generate 128 --batch 1 8 32 --repeat 3

--model: a directory or a name on the Hub, of which only config.json is read. Prompts are random
tokens, and prefixes are not cached. After one run that warms up, a batch runs --repeat times: for
one token, which is the time of the prompts, and for --generate tokens, of which those count that
are written while every sequence decodes. Prints one JSON object per batch, with medians.

With --load IN/OUT instead: --requests requests of IN prompt tokens and OUT output tokens that all
wait from the start, at most --max-sequences at a time, as `winnow bench --load` has them.
"""

import argparse
import itertools
import json
import random
import statistics
import time

import torch
import transformers
import vllm
from vllm.sampling_params import RequestOutputKind

request_ids = itertools.count()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt", type=int, default=8192)
    parser.add_argument("--generate", type=int, default=128)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--load", help="IN/OUT, such as 1000/1000")
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--max-sequences", type=int, default=256)
    parser.add_argument("--tensor-parallel", type=int, default=1)
    parser.add_argument("--quantization", help="fp8, for example; default: bf16 weights")
    parser.add_argument("--kv-dtype", default="auto", help="auto (bf16) or fp8")
    parser.add_argument("--attention", help="FLASH_ATTN, for example; default: vLLM chooses")
    args = parser.parse_args()
    if args.load:
        args.prompt, args.generate = map(int, args.load.split("/"))
    return args


def load(args: argparse.Namespace) -> vllm.LLM:
    attention = {"attention_config": {"backend": args.attention}} if args.attention else {}
    # Its default compilation; graphs of the measured batches only, for a shorter start.
    graphs = {} if args.load else {"compilation_config": {"cudagraph_capture_sizes":
                                                          sorted(args.batch)}}
    most = args.max_sequences if args.load else max(args.batch)
    return vllm.LLM(args.model, load_format="dummy", skip_tokenizer_init=True, dtype="bfloat16",
                    quantization=args.quantization, kv_cache_dtype=args.kv_dtype,
                    tensor_parallel_size=args.tensor_parallel, max_num_seqs=most,
                    max_model_len=args.prompt + args.generate, enable_prefix_caching=False,
                    **graphs, **attention)


def run(llm: vllm.LLM, batch: int, args: argparse.Namespace, vocab: int,
        tokens: int) -> list[tuple[float, list[str]]]:
    """Generates `tokens` for each of `batch` prompts. Returns the time since the start of each of
    the engine's steps and the requests that got a token in it."""
    engine = llm.llm_engine
    sampling = vllm.SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True,
                                   detokenize=False, output_kind=RequestOutputKind.DELTA)
    prompts = [{"prompt_token_ids": [random.randrange(vocab) for _ in range(args.prompt)]}
               for _ in range(batch)]
    begin = time.perf_counter()
    for prompt in prompts:
        engine.add_request(str(next(request_ids)), prompt, sampling)
    steps = []
    while engine.has_unfinished_requests():
        outputs = engine.step()
        got = [output.request_id for output in outputs
               for _ in output.outputs[0].token_ids]
        steps.append((time.perf_counter() - begin, got))
    assert sum(len(got) for _, got in steps) == batch * tokens
    return steps


def decode_rate(steps: list[tuple[float, list[str]]], batch: int, tokens: int) -> float:
    """Tokens/s between the step by which every sequence has one and that in which the first ends."""
    counts: dict[str, int] = {}
    started = ended = None
    written = 0
    for at, got in steps:
        if started is not None and ended is None:
            written += len(got)
        for request in got:
            counts[request] = counts.get(request, 0) + 1
        if started is None and len(counts) == batch:
            started = at
        if ended is None and max(counts.values(), default=0) == tokens:
            ended = at
    assert started is not None and ended is not None and started < ended
    return written / (ended - started)


def measure(llm: vllm.LLM, args: argparse.Namespace, batch: int, vocab: int) -> dict:
    run(llm, batch, args, vocab, args.generate)  # warms up
    first = [run(llm, batch, args, vocab, 1)[-1][0] for _ in range(args.repeat)]
    decode = [decode_rate(run(llm, batch, args, vocab, args.generate), batch, args.generate)
              for _ in range(args.repeat)]
    return {"prefill_tok_s": batch * args.prompt / statistics.median(first),
            "decode_tok_s": statistics.median(decode),
            "t_first_all": first, "decode_all": decode}


def measure_load(llm: vllm.LLM, args: argparse.Namespace, vocab: int) -> dict:
    run(llm, 1, args, vocab, 4)  # warms up
    steps = run(llm, args.requests, args, vocab, args.generate)
    total = args.requests * args.generate
    written = list(itertools.accumulate(len(got) for _, got in steps))
    first = next(i for i, count in enumerate(written) if count >= total / 4)
    last = next(i for i, count in enumerate(written) if count >= total - total / 4)
    return {"output_tok_s": total / steps[-1][0], "seconds": steps[-1][0],
            "middle_half_tok_s": (written[last] - written[first]) / (steps[last][0] - steps[first][0])}


def main() -> None:
    args = arguments()
    random.seed(0)
    vocab = transformers.AutoConfig.from_pretrained(args.model).vocab_size
    llm = load(args)
    common = {"engine": "vllm", "version": vllm.__version__, "gpu": torch.cuda.get_device_name(0),
              "model": args.model, "tp": args.tensor_parallel, "quant": args.quantization or "none",
              "kv": args.kv_dtype, "prompt": args.prompt, "gen": args.generate}
    if args.load:
        print(json.dumps({**common, "requests": args.requests, "most": args.max_sequences,
                          **measure_load(llm, args, vocab)}), flush=True)
        return
    for batch in args.batch:
        print(json.dumps({**common, "c": batch, **measure(llm, args, batch, vocab)}), flush=True)


if __name__ == "__main__":
    main()
