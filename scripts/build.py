#!/usr/bin/env python3
"""Builds targets with one line of progress and an estimate of the time left; what fails is shown whole.

    scripts/build.py BUILD_DIR [TARGET...]
"""
import os
import re
import subprocess
import sys
import time

PLAIN_SECONDS = 20.0  # between progress lines if the output is no terminal
STEP = re.compile(r"^\[(\d+)/(\d+)\] (.*)")


def time_left(started: float, done: int, total: int) -> str:
    """From the mean of the steps so far; nothing before there are enough of them."""
    elapsed = time.monotonic() - started
    if done < 10 or elapsed < 5.0 or done == total:
        return ""
    seconds = elapsed / done * (total - done)
    return f", about {max(1, round(seconds / 60))} min left" if seconds >= 45 else f", {seconds:.0f} s left"


def main(folder: str, targets: list[str]) -> int:
    command = ["cmake", "--build", folder, *(["--target", *targets] if targets else [])]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        env={**os.environ, "NINJA_STATUS": "[%f/%t] "})
    terminal = sys.stdout.isatty()
    started = shown = time.monotonic()
    drawn = False
    for line in process.stdout:
        step = STEP.match(line)
        if step is None:
            if "no work to do" not in line and not line.startswith("ninja: Entering"):
                print("\n" * drawn + line, end="")  # warnings and errors
                drawn = False
            continue
        done, total = int(step[1]), int(step[2])
        text = f"building: {done} of {total} files{time_left(started, done, total)}"
        if terminal:
            print(f"\r\033[K{text}", end="", flush=True)
            drawn = True
        elif time.monotonic() - shown >= PLAIN_SECONDS:
            print(text, flush=True)
            shown = time.monotonic()
    if drawn:
        print("\r\033[K", end="", flush=True)
    status = process.wait()
    took = time.monotonic() - started
    if status == 0 and took >= 5.0:
        print(f"built {folder} in {took:.0f} s", flush=True)
    return status


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    try:
        sys.exit(main(sys.argv[1], sys.argv[2:]))
    except KeyboardInterrupt:
        sys.exit(130)
