#!/usr/bin/env python3
"""Compiles, without making code, the C++ files that only builds for CUDA devices contain, and the benchmarks.

    scripts/check_device_hosts.py BUILD_DIR [FILE]...    a folder that CMake configured with WINNOW_CUDA=ON
                                                        and WINNOW_BUILD_BENCHMARKS=ON; FILEs: only these
"""
import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor


def is_checked(file: str, chosen: set[str]) -> bool:
    """Whether `file` is one of the chosen; without these, of those that other builds leave out."""
    if chosen:
        return file in chosen
    return file.endswith(".cc") and ("/benchmarks/" in file or "/cuda/" in file)


def units(folder: str, chosen: set[str]) -> list[tuple[str, list[str], list[str]]]:
    """Working directory, compiler command and files, of one folder with the same command at a time, or of
    one program: read together, they read the headers that they share once."""
    with open(os.path.join(folder, "compile_commands.json"), encoding="utf-8") as database:
        entries = json.load(database)
    groups: dict[tuple, list[str]] = {}
    for entry in entries:
        file = entry["file"]
        if is_checked(file, chosen):
            key = (file if "/benchmarks/" in file else os.path.dirname(file), entry["directory"], *checking_command(entry))
            groups.setdefault(key, []).append(file)
    return [(directory, command, files) for (_, directory, *command), files in groups.items()]


def checking_command(entry: dict) -> list[str]:
    """The entry's compiler and flags, without its file, outputs and optimisation."""
    words, kept = iter(shlex.split(entry["command"])), []
    for word in words:
        if word in ("-o", "-MF", "-MT", "-include"):  # outputs, and headers compiled beforehand
            next(words)
        elif word not in ("-c", "-MD", "ccache", entry["file"]) and not word.startswith(("-O", "-Winvalid-pch")):
            kept.append(word)
    return kept


def check(unit: tuple[str, list[str], list[str]]) -> str:
    """The compiler's output; empty if the files compile without a warning."""
    directory, command, files = unit
    output = compile_together(directory, command, files)
    if not output or len(files) == 1:
        return output
    # Builds compile these files one by one, so two of them may use the same name.
    return "".join(compile_together(directory, command, [file]) for file in files)


def compile_together(directory: str, command: list[str], files: list[str]) -> str:
    # A unity file may use types of another file's unnamed namespace.
    result = subprocess.run([*command, "-Wno-subobject-linkage", "-fsyntax-only", "-x", "c++", "-"],
                            input="".join(f'#include "{file}"\n' for file in files), cwd=directory,
                            capture_output=True, text=True, errors="replace", check=False)
    return result.stderr if result.returncode else ""


def main(folder: str, files: list[str]) -> int:
    chosen = {os.path.realpath(file) for file in files}
    checked = units(folder, chosen)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failures = [text for text in pool.map(check, checked) if text]
    print("".join(failures), end="", file=sys.stderr)
    compiled = {file for _, _, files in checked for file in files}
    unknown = sorted(chosen - compiled)
    print("".join(f"devices: {file}: not in a build for devices\n" for file in unknown), end="", file=sys.stderr)
    print(f"devices: {len(compiled)} host files in {len(checked)} units, {len(failures)} of which do not compile")
    return 1 if failures or unknown or not checked else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
