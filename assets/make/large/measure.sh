#!/usr/bin/env bash
# Measures the base and its students, then all rules that need no training at CR 2, 4, 8 and 16:
#
#     measure.sh WINNOW WORK --places cuda:0=4 cuda:1=4 [flags of benchmarks/quality.py]
#
# WORK/quality.md  base and students: held-out texts, needles and chains of variables at half, one and two training
#                  lengths, RULER, arithmetic as the ninth turn of a chat, register programs
# WORK/rules.md    beside them every rule, and the students under dms_quest and dms_budget: fewer and shorter prompts
#
# What matters most comes first: a run that is cut has it. What WORK/measures holds is not measured again; without
# --places the tables are made of it.
set -euo pipefail

winnow=$1
work=$2
shift 2
flags=("$@")
make=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
text=$work/held-out
status=0
trap 'exit 130' INT

mapfile -t students < <("$python" "$make/students.py" "$work")

quality() { # goes on with the others when single runs fail
  "$python" "$make/../../../benchmarks/quality.py" --winnow "$winnow" --base "$work/base" --students "${students[@]}" \
    --hay "$text/essays.txt" --calibration-text "$work/calibration.txt" --work "$work/measures" "$@" "${flags[@]}" || status=$?
}

rules() { # RATIOS STUDENT...: under these ratios, these students with budgets too
  quality --out "$work/rules" --ratios "$1" --budgets "${@:2}" --text all="$text/all.txt" --eval-tokens 0 --lengths 4096 \
    --repeats 10 --problems 200 --programs 64 --samples 5 --measures '^(?!equations|stories)'
}

if [ ! -e "$text/all.txt" ]; then # the beginning of every text, for what is slow
  for name in docs prose rfcs code textbooks wikitext2.test; do
    head -c 60000 "$text/$name.txt" | sed '$d' # without the line that is cut
  done > "$text/all.txt"
fi

# Beyond the training length only with RoPE scaled.
quality --out "$work/quality" --rows '^(dense|dms [0-9]+)$' --measures '^(?!.* 16384$)' \
  --text all="$text/all.txt" docs="$text/docs.txt" prose="$text/prose.txt" rfcs="$text/rfcs.txt" code="$text/code.txt" \
  textbooks="$text/textbooks.txt" wiki="$text/wikitext2.test.txt" --eval-tokens 131072 --lengths 4096,8192,16384 \
  --repeats 30 --problems 400 --programs 256 --samples 10
rules 4,8 dms-8
rules 2,16 dms-8
rules 2,4,8,16 "${students[@]%%=*}"
exit $status
