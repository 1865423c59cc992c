#!/usr/bin/env bash
# All checks that need a CUDA device, on any machine that has one: the parity tests, the kernels'
# tests under compute-sanitizer (memcheck and racecheck), and the benchmarks of benchmarks/cuda/ but
# fp8_batch_gemm, recurrent and training. Writes REPORT_DIR/report.txt, a log of each step and the
# benchmarks' JSON; fails when a step does.
#   scripts/gpu-check.sh [--quick] [--only PART] [--binaries DIR] [REPORT_DIR]   default: build/gpu-report
# --only: parity, sanitizers or speed.
# --binaries: builds nothing; takes tests, benchmarks and winnow from DIR (a build folder, or a flat
#   folder with all of them).
# --quick: a sixth of the parity tests, and three benchmarks (linear layers and attention of steps);
#   the sanitizers' part is the same.
set -euo pipefail
cd "$(dirname "$0")/.."

quick=false
only=
binaries=
while [[ "${1:-}" == --* ]]; do
  case $1 in
    --quick) quick=true ;;
    --only)
      [[ ${2:-} =~ ^(parity|sanitizers|speed)$ ]] || { echo "gpu-check: --only takes one of: parity, sanitizers, speed" >&2 && exit 2; }
      only=$2 && shift ;;
    --binaries) binaries=${2:?--binaries needs a folder} && shift ;;
    *) echo "gpu-check: unknown option $1: see the head of $0" >&2 && exit 2 ;;
  esac
  shift
done
if [[ -z $binaries ]]; then
  binaries=build/release
  scripts/bootstrap.sh
  cmake --preset release -DWINNOW_CUDA=ON -DWINNOW_BUILD_BENCHMARKS=ON
  cmake --build "$binaries"
fi
report=${1:-build/gpu-report}
mkdir -p "$report"
exec > >(tee "$report/report${only:+-$only}.txt") 2>&1

binary() {
  local folder
  for folder in "$binaries" "$binaries"/{tests,benchmarks/cuda,bin}; do
    [[ ! -x $folder/$1 || -d $folder/$1 ]] || { echo "$folder/$1" && return; }
  done
  echo "gpu-check: no $1 in $binaries" >&2
  return 1
}

# step NAME COMMAND...: writes the output to a log and prints the result in one line.
failed=()
pids=()
names=()
begin() {
  local name=$1 log
  log="$report/${name// /-}.log"
  shift
  ( start=$SECONDS; rc=0; "$@" > "$log" 2>&1 || rc=$?
    echo "$name: $([[ $rc == 0 ]] && echo passed || echo "failed ($rc), see $log"), $((SECONDS - start)) s"
    grep -E '^\[  (PASSED|FAILED)|ERROR SUMMARY|RACECHECK SUMMARY' "$log" | sed 's/^/    /' || true
    exit "$rc" ) &
  pids+=($!)
  names+=("$name")
}
wait_for_all() {
  local i
  for i in "${!pids[@]}"; do
    wait "${pids[$i]}" || failed+=("${names[$i]}")
  done
  pids=() names=()
}
step() { begin "$@" && wait_for_all; }

step device nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv
cat "$report/device.log"

# Correctness steps run side by side, on the devices in turn; some tests of training, parallel and api need several.
IFS=, read -ra devices <<< "${CUDA_VISIBLE_DEVICES:-$(nvidia-smi --query-gpu=index --format=csv,noheader | paste -sd,)}"
check_parity() {
  local parity='*Cuda*' shards=$(($(nproc) < 24 ? 6 : $(nproc) / 3)) last module shard device
  last=$((shards - 1))
  if $quick; then
    parity='*Cuda*:-*LongCuda*'
    last=0
  fi
  for module in ops kvcache engine train model parallel api; do
    for ((shard = 0; shard <= last; ++shard)); do
      device=${devices[shard % ${#devices[@]}]}
      [[ ! $module =~ ^(train|parallel|api)$ ]] || device=$(IFS=, && echo "${devices[*]}")
      begin "parity of $module $((shard + 1)) of $shards" \
        env CUDA_VISIBLE_DEVICES="$device" GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard \
        "$(binary "${module}_test")" --gtest_filter="$parity" --gtest_brief=1
    done
  done
  wait_for_all
}

# The sanitizer makes kernels a hundred times slower, so it gets few shapes of each.
sanitized_ops=(
  '*CudaSkinnyGemm.Silu/int4_N1022_K576:*CudaSkinnyGemm.Residual/bf16_N3070_K576:*CudaSkinnyGemms.ChainsAndOverlapChangeNothing/fp8'
  '*CudaSmallBatchGemm.Product/*_N250_K576:*CudaSmallBatchGemm.Product/*_N50_K2048'
  '*CudaSmallBatchEpilogue*'
  '*CudaFp8BatchGemm.Product/272x4160'
  '*CudaDecodeAttention.UnevenRows/*_D64_G4:*CudaDecodeAttention.UnevenRows/*_D80_G3:*CudaDecodeAttention.UnevenRows/fp8_D128_G4'
  '*CudaPrefillAttention.ShortLead/*_D64_G4:*CudaPrefillAttention.NoWindow/*_D80_G3'
  '*CudaPrefillAttention.FewTokensUnevenHeads/bf16_D128_G3:*CudaPrefillAttention.UnevenHeads/fp8_D128_G4'
  '*CudaSamplingTest.SearchesInSeveralPasses'
  '*CudaExperts.NormAndRoutesOfAFewRows:*CudaExperts.OfVeryFewTokens*:*CudaFp8Rows*'
  '*CudaExperts.OfGroupsOfTokens*'
  '*CudaTrainingAttention.PackedDocuments/D24_G1')
sanitized_kvcache=(
  '*CudaAppend.HoldsWhatTheHostHolds/dms_*_D64_G4_w37_shift1*:*CudaAppend.HoldsWhatTheHostHolds/dmc_*_D64*:*CudaAppend.HoldsWhatTheHostHolds/streaming_*_D80*:*CudaFork.CopiesOnly*'
  '*CudaTokenAttention.SeesWhatTheHostSees/tova_*_D64*'
  '*CudaTokenAttention.SeesWhatTheHostSees/h2o_*_D96*'
  '*CudaTokenAttention.SeesWhatTheHostSees/quest_*_D80*'
  '*CudaTokenAttention.SeesWhatTheHostSees/dms_quest_*_D64_G3*:*CudaTokenAttention.SeesWhatTheHostSees/dms_budget_*_D64*'
  '*CudaTokenAttention.SeesWhatTheHostSees/vatp_*_D40*:*CudaTokenAttention.SeesWhatTheHostSees/pyramidkv_*_D40*'
  '*CudaTokenAttention.SeesWhatTheHostSees/rkv_*_D256*:*CudaTokenAttention.SeesWhatTheHostSees/expected_attention_*_D80*')
# Whole steps in one kernel, for one and for few sequences. Memcheck only, because of linear layers.
sanitized_engine='*CudaBackendTest.ComputesWhatTheCpuComputes/llama_fp8:*CudaBackendTest.ComputesWhatTheCpuComputes/qwen3_streaming_fp8:*CudaFewSequences.DecodesEachAsByItself/llama_fp8'
# A training step: of a small model, and of one with biases of experts and sinks.
sanitized_train='*CudaTrainingOf*/*_family_llama__tiny__language:*CudaTrainingOf*/*_family_gpt_oss__language:*CudaFp8Products*'
# Racecheck does not understand a warp whose lanes read or write, synchronise, and let one lane arrive
# at a barrier: it reports the data that linear layers pass from warp to warp as races. For a batch
# they are one kernel, which other tests begin with.
not_followed=(--kernel-name-exclude kernel_substring=multiply_kernel)
sanitize() {
  local tool=$1 module=$2 filter=$3 name=${3%%:*} options=()
  local device=${devices[${#pids[@]} % ${#devices[@]}]}
  name=${name//[*]/}
  [[ $tool != racecheck ]] || options=("${not_followed[@]}")
  begin "$tool of ${name//\// }" env CUDA_VISIBLE_DEVICES="$device" \
    compute-sanitizer --tool "$tool" "${options[@]}" --error-exitcode 1 \
    "$(binary "${module}_test")" --gtest_filter="$filter" --gtest_brief=1
}
check_with_sanitizers() {
  local tool filter
  if ! command -v compute-sanitizer >/dev/null; then
    echo "compute-sanitizer is missing: memcheck and racecheck skipped"
    [[ -z $only ]] || failed+=("sanitizers, which are missing")
    return
  fi
  for tool in memcheck racecheck; do
    for filter in "${sanitized_ops[@]}"; do
      [[ $tool == racecheck && $filter =~ Cuda(SkinnyGemm|SmallBatchGemm|Fp8BatchGemm) ]] || sanitize "$tool" ops "$filter"
    done
    for filter in "${sanitized_kvcache[@]}"; do sanitize "$tool" kvcache "$filter"; done
  done
  sanitize memcheck engine "$sanitized_engine"
  sanitize memcheck train "$sanitized_train"
  wait_for_all
}

# Benchmarks run one after another.
measure_speed() {
  local benchmarks=(skinny_gemm small_batch_gemm decode_attention prefill_attention sampling training_attention_cuda)
  local name
  $quick && benchmarks=(skinny_gemm small_batch_gemm decode_attention)
  for name in "${benchmarks[@]}"; do
    step "$name" "$(binary "${name}_benchmark")" --json "$report/$name.json"
    cat "$report/$name.log"
  done
}

asked_for() { [[ -z $only || $only == "$1" ]]; }
! asked_for parity || check_parity
! asked_for sanitizers || check_with_sanitizers
! asked_for speed || measure_speed

echo "${#failed[@]} steps failed: ${failed[*]:-none}"
[[ ${#failed[@]} -eq 0 ]]
