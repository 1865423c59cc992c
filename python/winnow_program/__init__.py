"""Starts the program that lies in the wheel of winnow.

A package of its own: importing `winnow` would load the engine, which the program has itself.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path


def main() -> None:
    spec = find_spec("winnow")
    folders = list(spec.submodule_search_locations or []) if spec else []
    program = next((path for folder in folders if (path := Path(folder) / "bin" / "winnow").exists()), None)
    if program is None:
        sys.exit("winnow: error: this package was built without the program")
    os.execv(program, [sys.argv[0], *sys.argv[1:]])
