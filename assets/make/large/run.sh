#!/usr/bin/env bash
# Makes the larger base and its DMS students on CUDA devices, and measures them:
#
#     run.sh DATA WORK [flags of train.py, such as --ranks 2 --base-seconds 3600 --student-seconds 2400]
#
#   DATA  holds corpus/*.jsonl.zst and eval/
#   WORK  gets everything; what is already there is not made again, and a run that was cut goes on
#
# The text needs Debian 12's package mirrors and 5 minutes on two cores; after that nothing needs a network.
set -euo pipefail

data=$1
work=$2
shift 2
make=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$make/../../.." && pwd)
python=${PYTHON:-python3}
winnow=$root/build/cuda/bin/winnow
mkdir -p "$work"

if [ ! -e "$work/text/sources.json" ]; then
  "$python" "$make/packages.py" --held-out "$data"/corpus/*.valid.jsonl.zst "$data/eval/wikitext2.test.txt" \
    "$data/eval/essays.txt" --work "$work/packages" --out "$work/text"
fi
if [ ! -e "$work/tokens" ]; then
  "$python" "$make/tokens.py" --corpus "$data/corpus" --text "$work/text" --eval "$data/eval" --out "$work"
fi
"$python" "$make/train.py" --work "$work" --gsm8k "$data/eval/gsm8k.train.jsonl" --winnow "$winnow" "$@"
mapfile -t places < <(nvidia-smi --list-gpus | sed -n 's/^GPU \([0-9]*\):.*/cuda:\1=4/p')
"$make/measure.sh" "$winnow" "$work" --places "${places[@]}"
