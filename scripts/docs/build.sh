#!/usr/bin/env bash
# Builds the documentation into build/site. MkDocs comes from PyPI into a virtual environment in
# build/docs. A broken link or a page that the navigation leaves out is an error.
# Usage: scripts/docs/build.sh [MKDOCS_ARGUMENT ...]      (make docs builds the program first)
set -euo pipefail
cd "$(dirname "$0")/../.."

venv=build/docs
scripts/venv.sh "$venv" -r scripts/docs/requirements.txt
NO_MKDOCS_2_WARNING=1 "$venv/bin/mkdocs" build --strict --quiet "$@"
echo "docs: build/site/index.html"
