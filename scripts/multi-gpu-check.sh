#!/usr/bin/env bash
# Checks and benchmarks for several CUDA devices of one host, in one report: tests on ranks, tensor
# parallel inference, the largest batch of a 70B, training over ranks, a killed run, ranks that are
# processes. For any number of devices. A part that fails or does not fit is reported; the others continue.
#   scripts/multi-gpu-check.sh [--only PART] [--devices N] [--out DIR] [--binaries DIR] [more]
# Parts: tests, speed, batch, training, faults, processes. --help lists the rest. Without --binaries it builds.
# Writes DIR/report.md, DIR/results.json (all raw) and DIR/logs; default: build/multi-gpu-report.
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ " $* " != *" --binaries "* && " $* " != *" --help "* ]]; then
  scripts/bootstrap.sh
  cmake --preset release -DWINNOW_CUDA=ON -DWINNOW_BUILD_BENCHMARKS=ON
  cmake --build build/release
fi
exec python3 scripts/multi_gpu_check.py "$@"
