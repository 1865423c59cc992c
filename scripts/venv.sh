#!/usr/bin/env bash
# Makes the Python environment DIR with packages from PyPI, unless it already has exactly these. uv installs them
# in a twentieth of pip's processor time; if it fails (it does not read pip.conf), pip does. Exits with 77 if they
# cannot be installed: tests that need them are skipped.
# Usage: scripts/venv.sh DIR PIP_ARGUMENT...     e.g. scripts/venv.sh build/docs -r scripts/docs/requirements.txt
set -euo pipefail

venv=$1
shift
wanted="$* $(for file in "$@"; do [[ ! -f $file ]] || cat "$file"; done)"
if [[ "$(cat "$venv/packages" 2>/dev/null)" == "$wanted" ]]; then
  exit 0
fi
rm -rf "$venv"
pip=("$venv/bin/pip" install --quiet --disable-pip-version-check --timeout 20 --retries 1)
if python3 -m venv "$venv" && "${pip[@]}" uv &&
  { "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" "$@" || "${pip[@]}" "$@"; }; then
  echo "$wanted" >"$venv/packages"
else
  echo "no Python packages here: skipped"
  exit 77
fi
