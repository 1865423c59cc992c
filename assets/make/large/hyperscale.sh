#!/usr/bin/env bash
# Votes of parallel chains on register programs under every rule, by benchmarks/hyperscale.py:
#
#     hyperscale.sh WINNOW WORK --places cuda:0=4 cuda:1=4 [flags of benchmarks/hyperscale.py]
#
# Writes WORK/hyperscale/NAME.json for each; what is there is not made again. Models first, then the rules at CR 4 and 8.
set -euo pipefail

winnow=$1
work=$2
shift 2
make=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
benchmark=$make/../../../benchmarks

mapfile -t students < <("$python" "$make/students.py" "$work")
mapfile -t rules < <(cd "$benchmark" && "$python" -c '
import quality
rules = [*quality.UNTRAINED, *(f"dms-8:{rule}" for rule in quality.BUDGETS)]
print(*(f"{rule}={ratio}" for ratio in (4, 8) for rule in rules), sep="\n")')

"$python" "$benchmark/hyperscale.py" --winnow "$winnow" --base "$work/base" --students "${students[@]}" --rules "${rules[@]}" \
  --plain-text "$work/calibration.txt" --work "$work/hyperscale-work" --out "$work/hyperscale" \
  --problems 24 --lengths 1024,4000 --widths 1,2,4 --batch 24 "$@"
