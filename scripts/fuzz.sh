#!/usr/bin/env bash
# Builds every libFuzzer target and runs each for SECONDS (default 60) from its seed corpus.
# Findings stay under build/fuzz: new inputs in corpus/, failing ones in findings/.
# Usage: scripts/fuzz.sh [SECONDS] [--seed N] [TARGET ...]     e.g. scripts/fuzz.sh 600 safetensors
# With a seed each run tries the same inputs; without one, new inputs.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
shift || true
seed=0  # libFuzzer: any seed
if [[ ${1:-} == --seed ]]; then
  seed=$2
  shift 2
fi
build=build/fuzz

cmake --preset fuzz >/dev/null
scripts/build.py "$build"
mkdir -p "$build/findings"

targets=("$@")
if [[ ${#targets[@]} -eq 0 ]]; then
  for source in fuzz/*_fuzz.cc; do
    targets+=("$(basename "$source" _fuzz.cc)")
  done
fi

run_target() {
  local target=$1 status=0
  mkdir -p "$build/corpus/$target"
  local options=(-max_total_time="$seconds" -rss_limit_mb=2048 -timeout=10 -seed="$seed" -print_final_stats=1
                 -artifact_prefix="$build/findings/$target-")
  if [[ -f fuzz/$target.dict ]]; then
    options+=(-dict="fuzz/$target.dict")
  fi
  local log
  log=$("$build/fuzz/${target}_fuzz" "${options[@]}" "$build/corpus/$target" "fuzz/corpus/$target" 2>&1) || status=$?
  if [[ $status -eq 0 ]]; then
    echo "fuzz: $target: $(sed -n 's/^Done //p' <<<"$log"), nothing found"
  else
    printf 'fuzz: %s FAILED\n%s\n' "$target" "$log"
  fi
  return "$status"
}
export -f run_target
export build seconds seed
# Runs one target per core at a time.
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c 'run_target "$@"' _ {}
