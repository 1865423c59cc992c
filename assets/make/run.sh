#!/usr/bin/env bash
# Makes the demo models: run.sh DATA WORK
#   DATA  holds corpus/*.jsonl.zst and eval/
#   WORK  gets everything; what is already there is not made again
set -euo pipefail

data=$1
work=$2
make=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
mkdir -p "$work/metrics" "$work/results"

if [ ! -e "$work/tokenizer" ]; then
  "$python" "$make/tokenizer.py" --corpus "$data/corpus" --gsm8k "$data/eval/gsm8k.train.jsonl" \
    --out "$work/tokenizer"
fi
if [ ! -e "$work/tokens" ]; then
  "$python" "$make/corpus.py" --corpus "$data/corpus" --eval "$data/eval" \
    --tokenizer "$work/tokenizer/tokenizer.json" --out "$work/tokens"
fi

common=(--data "$work/tokens" --gsm8k "$data/eval/gsm8k.train.jsonl")
if [ ! -e "$work/base" ]; then
  "$python" "$make/pretrain.py" "${common[@]}" --tokenizer "$work/tokenizer" \
    --out "$work/base" --metrics "$work/metrics/base.jsonl"
fi
if [ ! -e "$work/dms-cr8" ]; then
  "$python" "$make/retrofit.py" "${common[@]}" --base "$work/base" --target-cr 8 \
    --out "$work/dms-cr8" --metrics "$work/metrics/dms-cr8.jsonl"
fi

if [ ! -e "$work/dms-cr4" ]; then
  "$python" "$make/retrofit.py" "${common[@]}" --base "$work/base" --target-cr 4 --steps 500 --ramp-steps 250 \
    --out "$work/dms-cr4" --metrics "$work/metrics/dms-cr4.jsonl"
fi

evaluate=("$python" "$make/evaluate.py" --base "$work/base" --data "$work/tokens"
  --gsm8k-test "$data/eval/gsm8k.test.jsonl")
"${evaluate[@]}" --out "$work/results/base.json"
"${evaluate[@]}" --student "$work/dms-cr8" --out "$work/results/dms-cr8.json"
"${evaluate[@]}" --student "$work/dms-cr4" --out "$work/results/dms-cr4.json"
"$python" "$make/plot.py" "$work"/metrics/{base,dms-cr8,dms-cr4}.jsonl --out "$work/results/curves.png"
"$python" "$make/demo.py" --base "$work/base" --student "$work/dms-cr8" \
  --prompt "$make/../demo_prompt.txt" --out "$work/demo_reference.json"
