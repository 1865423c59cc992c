#!/usr/bin/env bash
# Cross-builds winnow for aarch64 and runs its tests under qemu-user, as several CPUs.
#   scripts/aarch64-tests.sh          all tests on an emulated NEON CPU, kernel tests on six CPUs
#   scripts/aarch64-tests.sh kernels  as CI: kernel tests on two emulated CPUs
#   scripts/aarch64-tests.sh sysroot  only fetches the libraries
# It needs g++-aarch64-linux-gnu and qemu-user (scripts/bootstrap.sh --ci). The libraries are this
# Debian's or Ubuntu's arm64 packages, unpacked into a separate folder: the system stays as it is.
set -euo pipefail
cd "$(dirname "$0")/.."

build=build/aarch64
sysroot=$PWD/build/aarch64-sysroot

# The emulated CPU's instructions decide which kernels run.
declare -A cpus=(
  [NEON]=cortex-a57
  [DotProd]=neoverse-n1
  [SVE of 512 bits]=a64fx
  [BF16 and I8MM]="max,sve=off"
  [BF16, I8MM and SVE2 of 128 bits]="max,sve-max-vq=1"
  [BF16, I8MM and SVE2 of 256 bits]="max,sve-max-vq=2"
)
all_cpus=(NEON DotProd "SVE of 512 bits" "BF16 and I8MM" "BF16, I8MM and SVE2 of 128 bits"
  "BF16, I8MM and SVE2 of 256 bits")
# The oldest CPU, and the one with the most instructions that are emulated fast.
few_cpus=(NEON "BF16, I8MM and SVE2 of 128 bits")
# Tests of ops_test that reach every kernel, without those that take minutes in an emulator.
kernels='Activate*:AttentionDots*:CausalConv*:DeltaRule*:InBf16/Decode*:LayerNorm*:Linear.*:QuantizedTile*'
kernels+=':RmsNorm*:Rope*:RoundToBf16*:SiluMultiply*:SoftCap*:SmallProduct*'
kernels+='-Linear.DeterministicRows*:Linear.InDots*'

# Where apt finds packages for arm64, as options: Debian's mirrors have them, Ubuntu's are elsewhere.
sources() {
  (
    . /etc/os-release
    if [[ $ID == ubuntu ]]; then
      echo "deb http://ports.ubuntu.com/ubuntu-ports $VERSION_CODENAME main universe" >"$1/sources.list"
      echo "-o Dir::Etc::SourceList=$1/sources.list -o Dir::Etc::SourceParts=-"
    fi
  )
}

# A separate apt without installed packages, so that it fetches all dependencies.
fetch_libraries() {
  local libraries apt=$sysroot/apt options
  mapfile -t libraries < <(scripts/bootstrap.sh --libraries)
  if [[ -f $sysroot/libraries && "$(<"$sysroot/libraries")" == "${libraries[*]}" ]]; then
    return
  fi
  rm -rf "$sysroot"
  mkdir -p "$sysroot/usr/lib" "$apt/lists/partial" "$apt/archives/partial"
  ln -s usr/lib "$sysroot/lib"
  : >"$apt/status"
  options=(-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Debug::NoLocking=1
    -o Dir::State="$apt" -o Dir::State::Lists="$apt/lists" -o Dir::State::status="$apt/status"
    -o Dir::Cache="$apt" -o APT::Sandbox::User="$(id -un)" -o Acquire::Retries=3 $(sources "$apt"))
  echo "aarch64-tests: fetching libraries for arm64"
  apt-get "${options[@]}" update
  apt-get "${options[@]}" install -y --download-only --no-install-recommends "${libraries[@]}" \
    >/dev/null
  for package in "$apt"/archives/*.deb; do
    dpkg-deb -x "$package" "$sysroot"
  done
  rm -rf "$apt"
  echo "${libraries[*]}" >"$sysroot/libraries"
}

build_tests() {
  cmake --preset aarch64 >/dev/null
  cmake --build "$build" "$@"
}

# Runs a test program and prints its result, or its whole output if it fails.
run_tests() {
  local cpu=$1 program=$2 log
  shift 2
  log=$build/tests/$program-$cpu.log
  if ! QEMU_CPU=$cpu timeout 3600 qemu-aarch64 -L "$sysroot" "$build/tests/$program" \
    --gtest_brief=1 "$@" >"$log" 2>&1; then
    cat "$log"
    echo "aarch64-tests: $program FAILED as $cpu" >&2
    return 1
  fi
  echo "$program as $cpu: $(sed -n 's/^\[  \(PASSED\|SKIPPED\) *\] \([0-9]*\) test.*/\2 \1/p' "$log" |
    tr 'A-Z\n' 'a-z ')"
}

# Runs the kernel tests on each named CPU, in parallel: an emulator has one thread.
run_kernels() {
  local name failed=0
  local -A running=()
  for name in "$@"; do
    run_tests "${cpus[$name]}" ops_test --gtest_filter="$kernels" &
    running[$name]=$!
  done
  for name in "$@"; do
    wait "${running[$name]}" || failed=1
  done
  return "$failed"
}

fetch_libraries
case "${1:-all}" in
  sysroot) ;;
  kernels)
    build_tests --target ops_test
    run_kernels "${few_cpus[@]}"
    ;;
  all)
    build_tests
    failed=0
    run_kernels "${all_cpus[@]}" || failed=1
    echo "== all test programs"
    for program in "$build"/tests/*_test; do
      run_tests "${cpus[NEON]}" "$(basename "$program")" || failed=1
    done
    exit "$failed"
    ;;
  *)
    sed -n '2,7s/^# \?//p' "$0" >&2
    exit 2
    ;;
esac
