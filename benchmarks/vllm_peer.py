"""vLLM on a shape with random weights: prefill and decode tokens/s, as winnow bench measures them.

    pip install vllm==0.26.0
    python vllm_peer.py --model Qwen/Qwen3-8B --prompt 8192 --generate 128 --batch 1 8 32 --repeat 3

--model: a directory or a name on the Hub, of which only config.json is read. Prompts are random
tokens, and prefixes are not cached. A batch runs for one token, which is the time of the prompts,
and for --generate tokens, each --repeat times after one run that warms up. Prints one JSON object
per batch, with medians.
"""

import argparse
import json
import random
import statistics
import time

import transformers
import vllm


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt", type=int, default=8192)
    parser.add_argument("--generate", type=int, default=128)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--tensor-parallel", type=int, default=1)
    parser.add_argument("--quantization", help="fp8, for example; default: bf16 weights")
    parser.add_argument("--kv-dtype", default="auto", help="auto (bf16) or fp8")
    return parser.parse_args()


def load(args: argparse.Namespace) -> vllm.LLM:
    return vllm.LLM(args.model, load_format="dummy", skip_tokenizer_init=True, dtype="bfloat16",
                    quantization=args.quantization, kv_cache_dtype=args.kv_dtype,
                    tensor_parallel_size=args.tensor_parallel, max_num_seqs=max(args.batch),
                    max_model_len=args.prompt + args.generate, enable_prefix_caching=False)


def random_prompts(count: int, length: int, vocab: int) -> list[dict]:
    return [{"prompt_token_ids": [random.randrange(vocab) for _ in range(length)]}
            for _ in range(count)]


def seconds(llm: vllm.LLM, prompts: list[dict], tokens: int) -> float:
    sampling = vllm.SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True,
                                   detokenize=False)
    begin = time.perf_counter()
    answers = llm.generate(prompts, sampling, use_tqdm=False)
    elapsed = time.perf_counter() - begin
    assert all(len(answer.outputs[0].token_ids) == tokens for answer in answers)
    return elapsed


def measure(llm: vllm.LLM, args: argparse.Namespace, batch: int, vocab: int) -> dict:
    prompts = random_prompts(batch, args.prompt, vocab)
    seconds(llm, prompts, args.generate)  # warms up
    first = [seconds(llm, prompts, 1) for _ in range(args.repeat)]
    whole = [seconds(llm, prompts, args.generate) for _ in range(args.repeat)]
    t_first, t_whole = statistics.median(first), statistics.median(whole)
    return {"prefill_tok_s": batch * args.prompt / t_first,
            "decode_tok_s": batch * (args.generate - 1) / (t_whole - t_first),
            "t_first_all": first, "t_full_all": whole}


def main() -> None:
    args = arguments()
    random.seed(0)
    llm = load(args)
    vocab = transformers.AutoConfig.from_pretrained(args.model).vocab_size
    for batch in args.batch:
        print(json.dumps({"engine": "vllm", "version": vllm.__version__, "model": args.model,
                          "tp": args.tensor_parallel, "quant": args.quantization or "none",
                          "kv": args.kv_dtype, "c": batch, "prompt": args.prompt,
                          "gen": args.generate, **measure(llm, args, batch, vocab)}), flush=True)


if __name__ == "__main__":
    main()
