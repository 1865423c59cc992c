#!/usr/bin/env bash
# Measures the base and the students: measure.sh WINNOW WORK --places cuda:0=4 [flags of benchmarks/quality.py]
#
# Held-out perplexity and KLD, needles and chains of variables at half, one and two training lengths, arithmetic
# as the ninth turn of a chat, register programs. What WORK/measures holds is not measured again; without --places
# the tables are made of it.
set -euo pipefail

winnow=$1
work=$2
shift 2
make=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
text=$work/held-out

mapfile -t students < <("$python" -c '
import json, sys
models = json.load(open(sys.argv[1]))
print("\n".join(f"{name}={folder}" for name, folder in models.items() if name != "base"))' "$work/models.json")
"$python" "$make/../../../benchmarks/quality.py" --winnow "$winnow" --base "$work/base" --students "${students[@]}" \
  --text docs="$text/docs.txt" prose="$text/prose.txt" rfcs="$text/rfcs.txt" code="$text/code.txt" \
  textbooks="$text/textbooks.txt" wiki="$text/wikitext2.test.txt" --eval-tokens 0 --hay "$text/essays.txt" \
  --lengths 4096,8192,16384 --repeats 20 --problems 200 --programs 100 --rows '^(dense|dms [0-9]+)$' \
  --work "$work/measures" --out "$work/quality" "$@"
