"""What each rule costs on a text: perplexity, divergence and cache size, one engine for all.

    python benchmarks/rules.py --text wiki.test.txt --max-tokens 16000 --output docs/results/rules.json

Runs `winnow eval perplexity` for every rule at several compression ratios, on the dense base with the
rules that need no training and on the DMS student, with entries in bf16, fp8 and int8.
"""

import argparse
import json
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent


def configurations() -> list:
    """(name, model, flags)"""
    rows = [("dense", "base", ["--cache", "dense"])]
    rows += [(f"dense, {kind}", "base", ["--cache", "dense", "--kv-dtype", kind])
             for kind in ("fp8", "int8")]
    rows += [(f"dense, {kind} weights", "base", ["--weights", kind]) for kind in ("int8", "int4")]
    for rule in ("streaming", "tova", "h2o", "quest"):
        rows += [(f"{rule}, CR {ratio}", "base", ["--cache", rule, "--cr", str(ratio)])
                 for ratio in (2, 4, 8)]
    rows.append(("DMS", "dms-cr8", []))
    rows += [(f"DMS, {kind}", "dms-cr8", ["--kv-dtype", kind]) for kind in ("fp8", "int8")]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, default=HERE.parent / "build/release/bin/winnow")
    parser.add_argument("--assets", type=Path, default=HERE.parent / "assets")
    parser.add_argument("--text", required=True)
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--max-tokens", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()

    results = []
    print("| rule | perplexity | KLD, nats/token | same top token | CR | cache, KiB |")
    print("|---|---|---|---|---|---|")
    for name, model, flags in configurations():
        command = [str(args.binary), "eval", "perplexity", "--model", str(args.assets / model),
                   "--text", args.text, "--context", str(args.context),
                   "--max-tokens", str(args.max_tokens), "--reference", str(args.assets / "base"),
                   "--json", *flags]
        row = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        row |= {"model": f"assets/{model}", "reference": "assets/base", "text": Path(args.text).name}
        results.append({"name": name, "flags": flags, **row})
        print(f"| {name} | {row['perplexity']:.3f} | {row['kld']:.4f} | "
              f"{100 * row['top1_agreement']:.1f} % | {row['compression_ratio']:.2f} | "
              f"{row['kv_bytes'] / 1024:.0f} |", flush=True)
        args.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
