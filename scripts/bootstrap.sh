#!/usr/bin/env bash
# Installs the system packages that winnow is built with; says nothing when they are all there.
#   scripts/bootstrap.sh           what building, testing and benchmarking need
#   scripts/bootstrap.sh --python  also what the Python package is built with
#   scripts/bootstrap.sh --package  also what packages are made with
#   scripts/bootstrap.sh --ci      also that and the checkers: clang-format, clang-tidy, clang for
#                                  the fuzzers, MPI, ZeroMQ, a browser for the page's tests, and a
#                                  compiler for aarch64 with an emulator
#   scripts/bootstrap.sh --libraries  installs nothing: names what winnow and its tests link
# The names are those of Debian 12 and Ubuntu 24.04. What each one is for: docs/dependencies.md.
set -euo pipefail

tools=(g++ cmake ninja-build pkg-config python3)
libraries=(
  libdnnl-dev ocl-icd-opencl-dev libhwy-dev nlohmann-json3-dev libpcre2-dev libonig-dev
  libutf8proc-dev libunistring-dev libsentencepiece-dev
  libprotobuf-dev  # sentencepiece.pc of Ubuntu 24.04 asks for it
  libzstd-dev libboost-dev libssl-dev libcurl4-openssl-dev
  libcli11-dev libedit-dev libfmt-dev
  libgtest-dev libgmock-dev librapidcheck-dev libbenchmark-dev
)
packages=("${tools[@]}" "${libraries[@]}")
python=(python3-dev python3-venv)
packagers=(dpkg-dev file patchelf "${python[@]}")
checkers=(clang clang-format clang-tidy libopenmpi-dev openmpi-bin libzmq3-dev libmsgpack-cxx-dev
  g++-aarch64-linux-gnu qemu-user)

# libFuzzer and the sanitizers of clang come in a package that carries clang's version.
clang_runtime() {
  apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9]\+\)$/libclang-rt-\1-dev/p'
}

# Where it comes as a package: Ubuntu has it as a snap, and there the page's tests are skipped.
browser() {
  apt-cache show chromium >/dev/null 2>&1 && echo chromium || true
}

# Prints the packages among the arguments that are not installed, one per line.
missing_of() {
  local package installed
  # One dpkg-query for all of them: this runs before every make. It fails for names unknown to dpkg.
  installed=" $({ dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true; } |
    sed -n 's/^installed //p' | tr '\n' ' ') "
  for package in "$@"; do
    [[ "$installed" == *" $package "* ]] || echo "$package"
  done
}

as_root() {
  if [[ $(id -u) -eq 0 ]]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    echo "bootstrap: neither root nor sudo; as root run: apt-get install ${missing[*]}" >&2
    exit 1
  fi
}

install_missing() {
  echo "bootstrap: installing ${missing[*]}"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 "${missing[@]}" >/dev/null
}

if [[ "${1:-}" == --libraries ]]; then
  printf '%s\n' "${libraries[@]}"
  exit
fi

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "bootstrap: no apt here, so nothing is installed; winnow needs: ${packages[*]}" >&2
  exit 0
fi

[[ "${1:-}" != --python ]] || packages+=("${python[@]}")
[[ "${1:-}" != --package ]] || packages+=("${packagers[@]}")
[[ "${1:-}" != --ci ]] || packages+=("${python[@]}" "${checkers[@]}")
mapfile -t missing < <(missing_of "${packages[@]}")
if [[ ${#missing[@]} -gt 0 ]]; then
  # A third-party source that is down is no error here; a missing package is one below.
  as_root apt-get update -qq >/dev/null || echo "bootstrap: apt-get update failed, going on" >&2
  install_missing
fi

if [[ "${1:-}" == --ci ]]; then
  mapfile -t missing < <(missing_of $(clang_runtime) $(browser))
  [[ ${#missing[@]} -eq 0 ]] || install_missing
fi
