#!/usr/bin/env bash
# Static checks of all files that git knows: formatting, links, older devices, clang-tidy.
#   scripts/check.sh format        fails when a file is not formatted as .clang-format says
#   scripts/check.sh format --fix  formats them
#   scripts/check.sh links         every relative link in Markdown files has a target, and the table of
#                                  models matches the tests
#   scripts/check.sh devices [FILE]...  device code and the host code around it compile; only these files
#   scripts/check.sh tidy          clang-tidy on every source file, newest change first; stops after
#                                  WINNOW_TIDY_SECONDS (default: no limit) and says what it left out
# clang-tidy reads the compile commands of CMake's preset `dev`.
set -euo pipefail
cd "$(dirname "$0")/.."

build=build/dev  # has a compile command for each file
format_version=14  # Debian 12's; other versions format some lines differently

sources() { git ls-files --cached --others --exclude-standard -- "$@" | sort -u; }

find_clang_format() { command -v clang-format-$format_version || command -v clang-format || true; }

check_format() {
  local tool files
  tool=$(find_clang_format)
  [[ -n "$tool" ]] || { echo "check: clang-format is missing: scripts/bootstrap.sh --ci" >&2; return 1; }
  mapfile -t files < <(sources '*.cc' '*.h' '*.cu' '*.cuh' | while read -r f; do [[ ! -f $f ]] || echo "$f"; done)
  if [[ "${1:-}" == --fix ]]; then
    "$tool" -i "${files[@]}"
  elif [[ "$("$tool" --version)" != *"version $format_version."* ]]; then
    echo "format: skipped: needs clang-format $format_version, found $("$tool" --version)"
  else
    local bad
    bad=$("$tool" --dry-run "${files[@]}" 2>&1 | sed -n 's/:.*clang-format-violations.*//p' | sort -u)
    if [[ -n "$bad" ]]; then
      printf 'format: make format would change %s\n' $bad
      return 1
    fi
    echo "format: ${#files[@]} files, all fine"
  fi
}

# A build compiles for one architecture only. This compiles device code for the oldest supported
# architecture, the code for Hopper for Hopper, and the host code of CUDA builds, which other builds
# leave out.
# It generates no machine code. Without file names it checks all files.
check_devices() {
  local nvcc file kernels=() hosts=()
  nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
  [[ -x $nvcc ]] || { echo "devices: skipped: there is no nvcc"; return; }
  for file in "$@"; do
    [[ -f $file ]] || { echo "devices: $file: no such file" >&2; return 1; }
    case $file in
      *.cu) kernels+=("$file") ;;
      *.cuh | *.h) mapfile -t -O ${#kernels[@]} kernels < <(sources '*.cu' | including "$file") ;;
      *.cc) hosts+=("$file") ;;
      *) echo "devices: $file: expected a .cu, .cuh, .h or .cc file" >&2; return 1 ;;
    esac
  done
  # fmt 9 does not compile in nvcc's host pass, which compile_for leaves out.
  if sources '*.cu' '*.cuh' | xargs grep -nE '#include ("base/error.h"|<fmt/)'; then
    echo "devices: device code must not include fmt: throw a standard exception" >&2
    return 1
  fi
  (($# > 0)) || mapfile -t kernels < <(sources '*.cu')
  compile_for sm_80 < <(printf '%s\n' "${kernels[@]}" | grep -v '_sm90\.cu$')
  compile_for sm_90a < <(printf '%s\n' "${kernels[@]}" | with_hopper_code)
  (($# == 0 || ${#hosts[@]} > 0)) || return 0
  cmake -S . -B build/device-check -G Ninja -DWINNOW_CUDA=ON -DWINNOW_BUILD_BENCHMARKS=ON \
    -DCMAKE_CUDA_COMPILER="$nvcc" >/dev/null
  scripts/check_device_hosts.py build/device-check "${hosts[@]}"
}

# Prints those of the files named on standard input that are, or include, one of the files named in
# the argument, one per line.
including() {
  local file
  while read -r file; do
    if g++ -MM -MG -nostdinc -x c++ -I src -I include -I tests "$file" | grep -F "$1" >/dev/null; then
      echo "$file"
    fi
  done
}

# Prints those of the files named on standard input that have code for Hopper: *_sm90.cu, and files
# that have or include a branch for it. The branches of src/base/ come with them.
with_hopper_code() {
  local files
  mapfile -t files
  printf '%s\n' "${files[@]}" | grep '_sm90\.cu$' || true
  printf '%s\n' "${files[@]}" | grep -v '_sm90\.cu$' |
    including "$(git grep --untracked -l '__CUDA_ARCH__ >= 900' -- 'src/*.cu*' ':!src/base')"
}

# compile_for ARCHITECTURE: compiles the files named on standard input. It does not optimise: that
# would take most of the time and find nothing.
compile_for() {
  local files
  mapfile -t files
  ((${#files[@]} > 0)) && [[ -n ${files[0]} ]] || return 0
  printf '%s\n' "${files[@]}" |
    xargs -P "$(nproc)" -I{} "$nvcc" -std=c++20 --expt-relaxed-constexpr -Werror=all-warnings -Xcicc -O0 \
      -arch="$1" -I src -I include -I tests -ptx -o /dev/null {}
  echo "devices: ${#files[@]} files compile for $1"
}

# Prints our own source files in the compilation database, without device code, which needs nvcc.
compiled() {
  sed -n 's/^ *"file": "\(.*\)",\{0,1\}$/\1/p' "$build/compile_commands.json" |
    sed "s|^$PWD/||" | grep -v -e '^/' -e '^build/' -e '\.cu$' | sort -u
}

# Prints all compiled files, the most recently changed first; a header counts as its .cc file.
newest_first() {
  {
    git diff --name-only HEAD
    git log --format= --name-only
    compiled
  } | sed 's/\.h$/.cc/' | awk '!seen[$0]++' | grep -Fxf <(compiled)
}

# The compile commands without the precompiled headers, which only g++ can read.
write_commands() {
  sed 's|-include [^ ]*/cmake_pch.hxx||' "$build/compile_commands.json" \
    >"$TIDY_COMMANDS/compile_commands.json"
}

# clang-tidy on one file. The compile commands are g++'s, so clang lacks some flags and headers:
# omp.h is only in gcc's folder, which therefore comes last in the search path. clang 14 has
# coroutines but does not announce them to libstdc++ and Asio.
tidy_one() {
  local start=$1 file=$2 output
  if ((TIDY_SECONDS > 0 && $(date +%s) - start > TIDY_SECONDS)); then
    echo "left $file" >>"$TIDY_LOG"
  elif output=$(clang-tidy --quiet -p "$TIDY_COMMANDS" --extra-arg=-Wno-unknown-warning-option \
    --extra-arg=-Wno-ignored-optimization-argument --extra-arg=-Wno-unused-command-line-argument --extra-arg=-idirafter"$GCC_HEADERS" \
    --extra-arg=-D__cpp_impl_coroutine=201902L --extra-arg=-DBOOST_ASIO_HAS_CO_AWAIT=1 "$file" 2>&1); then
    echo "fine $file" >>"$TIDY_LOG"
  else
    printf 'bad %s\n' "$file" >>"$TIDY_LOG"
    printf '%s\n' "$output" | grep -v -e 'warnings generated' -e '^Suppressed'
  fi
}

check_tidy() {
  command -v clang-tidy >/dev/null ||
    { echo "check: clang-tidy is missing: scripts/bootstrap.sh --ci" >&2; return 1; }
  cmake --preset dev >/dev/null
  TIDY_LOG=$(mktemp)
  TIDY_COMMANDS=$(mktemp -d)
  trap 'rm -rf "$TIDY_LOG" "$TIDY_COMMANDS"' EXIT
  write_commands
  GCC_HEADERS=$(dirname "$(g++ -print-file-name=include/stddef.h)")
  TIDY_SECONDS=${WINNOW_TIDY_SECONDS:-0}
  export -f tidy_one
  export TIDY_LOG TIDY_COMMANDS GCC_HEADERS TIDY_SECONDS
  newest_first | xargs -P "$(nproc)" -I{} bash -c 'tidy_one "$@"' _ "$(date +%s)" {}
  local fine bad left
  fine=$(grep -c '^fine' "$TIDY_LOG" || true)
  bad=$(grep -c '^bad' "$TIDY_LOG" || true)
  left=$(grep -c '^left' "$TIDY_LOG" || true)
  echo "tidy: $fine files fine, $bad not, $left left out (limit ${WINNOW_TIDY_SECONDS:-none})"
  ((bad == 0 && fine > 0))
}

case "${1:-}" in
  format) check_format "${2:-}" ;;
  links) python3 scripts/check_links.py && python3 scripts/check_models.py ;;
  devices) check_devices "${@:2}" ;;
  tidy) check_tidy ;;
  *)
    sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
