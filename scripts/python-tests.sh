#!/usr/bin/env bash
# Builds the Python package's wheel with the winnow of the build folder BUILD, installs it into a virtual
# environment in BUILD, and runs python/tests. Packages come from PyPI; exits with 77 (skipped) if
# they cannot be installed. --lm-eval also installs lm-evaluation-harness (160 MB) and compares with it.
# Usage: scripts/python-tests.sh BUILD [--lm-eval] [PYTEST_ARGUMENT ...]
set -euo pipefail
cd "$(dirname "$0")/.."

build=$(realpath "$1")
shift
packages=(-r python/tests/requirements.txt)
if [[ "${1:-}" == --lm-eval ]]; then
  packages+=(-r python/tests/requirements-lm-eval.txt)
  shift
fi
venv=$build/python-tests
scripts/venv.sh "$venv" "${packages[@]}"

launcher=$(command -v ccache || true)
cmake --install "$build" --component devel --prefix "$venv/winnow" >/dev/null
"$venv/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
  --wheel-dir "$venv/wheels" --config-settings=cmake.source-dir=. \
  --config-settings=cmake.define.WINNOW_BUILD_PYTHON= \
  --config-settings=cmake.define.CMAKE_PREFIX_PATH="$venv/winnow" \
  --config-settings=cmake.define.WINNOW_PROGRAM="$build/bin/winnow" \
  --config-settings=cmake.define.CMAKE_CXX_COMPILER_LAUNCHER="$launcher" \
  --config-settings=build-dir="$build/python-wheel" ./python
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --force-reinstall \
  "$venv"/wheels/winnow-*.whl
WINNOW_BINARY=$build/bin/winnow exec "$venv/bin/pytest" -q -p no:cacheprovider python/tests "$@"
