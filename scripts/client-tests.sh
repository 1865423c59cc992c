#!/usr/bin/env bash
# Asks a running server with real clients (tests/server/*.py), and a server like the Hugging Face Hub
# for models (tests/hub/*.py). Their packages come from PyPI into a
# virtual environment in BUILD; where there are none, exits with 77 (skipped).
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
