#!/usr/bin/env bash
# Retrofits the model in assets/base in a few minutes and runs it. The training data are winnow's own
# sources and pages.
#   scripts/retrofit-demo.sh [OUT] [FLAG...]    flags go to winnow retrofit
set -euo pipefail
cd "$(dirname "$0")/.."

winnow=${WINNOW_BUILD_DIR:-build/release}/bin/winnow
out=${1:-build/retrofit-demo}
shift || true

# A file as a line {"text": "..."}.
json_line() {
  printf '{"text": "'
  sed -e 's/\\/\\\\/g; s/"/\\"/g; s/\t/\\t/g; s/\r//g; s/$/\\n/' "$1" | tr -d '\n\000-\010\013-\037'
  printf '"}\n'
}

if [[ $out == build/retrofit-demo ]]; then
  rm -rf "$out"
elif [[ -e $out ]]; then
  echo "retrofit-demo: $out is already there" >&2
  exit 1
fi
mkdir -p "$out.data"
git ls-files '*.md' 'src/*.h' 'src/*.cc' 'apps/*.cc' | while read -r file; do json_line "$file"; done \
  >"$out.data/train.jsonl"
json_line assets/demo_prompt.txt >"$out.data/held-out.jsonl"

"$winnow" retrofit --model assets/base --out "$out" --data "$out.data/train.jsonl" \
  --valid "$out.data/held-out.jsonl" --decisions adapter --decision-lr 1e-3 --window 64 --target-cr 4 \
  --steps 80 --length 512 --batch 4 --micro-batch 4 --warmup 5 --eval-every 40 "$@"
echo
echo "What is the secret code of the Lisbon office? (3,124 tokens of Pepys' diary, the answer in the middle)"
"$winnow" generate --model "$out" --prompt-file assets/demo_prompt.txt --max-tokens 17
echo "Loss, ratio, and what each layer and head evicts: $out/training/curves.html"
echo
echo "One code found is no test: expect lost needles after so few steps."
echo "Next, in about 3.5 minutes of processor time: $winnow eval suite --model assets/base --compressed $out --quick"
