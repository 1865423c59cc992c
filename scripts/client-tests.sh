#!/usr/bin/env bash
# Tests the server with real clients (tests/server/*.py), and downloads from a server like the
# Hugging Face Hub (tests/hub/*.py). Their packages come from PyPI into a virtual environment in
# BUILD; exits with 77 (skipped) if they cannot be installed.
# Usage: scripts/client-tests.sh BUILD [PYTEST_ARGUMENT ...]
set -euo pipefail
cd "$(dirname "$0")/.."

build=$(realpath "$1")
shift
venv=$build/client-tests
scripts/venv.sh "$venv" -r tests/server/requirements.txt
# Two at a time: most of them wait more than they compute.
WINNOW_BINARY=$build/bin/winnow exec "$venv/bin/pytest" -q -p no:cacheprovider -n 2 --dist loadfile \
  tests/server tests/hub "$@"
