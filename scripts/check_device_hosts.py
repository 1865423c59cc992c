#!/usr/bin/env python3
"""Compiles, without making code, the C++ files that only builds for CUDA devices contain, and the benchmarks.

    scripts/check_device_hosts.py BUILD_DIR    a folder that CMake configured with WINNOW_CUDA=ON
                                              and WINNOW_BUILD_BENCHMARKS=ON
"""
import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor


def host_files(folder: str) -> list[dict]:
    with open(os.path.join(folder, "compile_commands.json"), encoding="utf-8") as database:
        return [entry for entry in json.load(database)
                if entry["file"].endswith(".cc") and
                ("/cuda/" in entry["file"] or "/benchmarks/" in entry["file"])]


def check(entry: dict) -> str:
    """The compiler's output; empty if the file compiles without a warning."""
    words, kept = iter(shlex.split(entry["command"])), []
    for word in words:
        if word in ("-o", "-MF", "-MT", "-include"):  # outputs, and headers compiled beforehand
            next(words)
        elif word not in ("-c", "-MD", "ccache") and not word.startswith(("-O", "-Winvalid-pch")):
            kept.append(word)
    result = subprocess.run([*kept, "-fsyntax-only"], cwd=entry["directory"], capture_output=True,
                            text=True, errors="replace", check=False)
    return result.stderr if result.returncode else ""


def main(folder: str) -> int:
    entries = host_files(folder)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failures = [text for text in pool.map(check, entries) if text]
    print("".join(failures), end="", file=sys.stderr)
    print(f"devices: {len(entries) - len(failures)} of {len(entries)} host files compile")
    return 1 if failures or not entries else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
