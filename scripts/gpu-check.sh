#!/usr/bin/env bash
# Everything that needs a CUDA device, on any machine that has one: the parity tests, the same under
# compute-sanitizer (memcheck and racecheck), and the benchmarks. Writes REPORT_DIR/report.txt and
# the benchmarks' JSON; fails when a step does.
#   scripts/gpu-check.sh [--no-build] [REPORT_DIR]     default: build/gpu-report
# --no-build takes the binaries that build/release holds.
set -euo pipefail
cd "$(dirname "$0")/.."

build=build/release
if [[ "${1:-}" == --no-build ]]; then
  shift
else
  scripts/bootstrap.sh
  cmake --preset release -DWINNOW_CUDA=ON -DWINNOW_BUILD_BENCHMARKS=ON
  cmake --build "$build"
fi
report=${1:-build/gpu-report}
mkdir -p "$report"
exec > >(tee "$report/report.txt") 2>&1

failed=()
step() {
  local name=$1
  shift
  echo "== $name"
  "$@" || failed+=("$name")
}

# A few shapes are enough under the sanitizer, which slows a kernel down a hundred times.
few_ops='*CudaLinearRows.Silu/int4_N1022_K576:*CudaLinearRows.Residual/bf16_N3070_K576:*CudaDecodeAttention.UnevenRows/*_D64_G4:*CudaDecodeAttention.UnevenRows/*_D80_G3:*CudaPrefillAttention.ShortLead/*_D64_G4:*CudaPrefillAttention.NoWindow/*_D80_G3'
few_kvcache='*CudaAppend.HoldsWhatTheHostHolds/dms_*_D64_G4_w37_shift1*:*CudaAppend.HoldsWhatTheHostHolds/dmc_*_D64*:*CudaAppend.HoldsWhatTheHostHolds/streaming_*_D80*:*CudaFork.CopiesOnly*:*CudaTokenAttention.SeesWhatTheHostSees/tova_*_D64*:*CudaTokenAttention.SeesWhatTheHostSees/h2o_*_D96*:*CudaTokenAttention.SeesWhatTheHostSees/quest_*_D80*'

step device nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv
for room in ops kvcache engine train; do
  step "parity of $room" "$build/tests/${room}_test" --gtest_filter='*Cuda*' --gtest_brief=1
done
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck; do
    step "$tool of ops" compute-sanitizer --tool "$tool" --error-exitcode 1 "$build/tests/ops_test" --gtest_filter="$few_ops" --gtest_brief=1
    step "$tool of kvcache" compute-sanitizer --tool "$tool" --error-exitcode 1 "$build/tests/kvcache_test" --gtest_filter="$few_kvcache" --gtest_brief=1
  done
else
  echo "== compute-sanitizer is not there: memcheck and racecheck left out"
fi
for benchmark in "$build"/benchmarks/cuda/*_benchmark; do
  name=$(basename "$benchmark")
  step "$name" "$benchmark" --json "$report/$name.json"
done

echo "== ${#failed[@]} steps failed: ${failed[*]:-none}"
[[ ${#failed[@]} -eq 0 ]]
