#!/usr/bin/env python3
"""Checks docs/reference/families.md against what the tests run.

Every family of src/model/families/ has a row. The fixtures of a row are of its class: exactness_test.cc runs
every folder of tests/fixtures/models. The gradients of every family are tested, but for those of the table behind
"On CPUs only, without training": supported_test.cc and trainer_test.cc name these. Families of the first table have a
case for CUDA: cuda_rules_test.cc runs every cache rule on one case of each. The others are refused by devices:
supported_test.cc names them, itself or by a list of spec_of.h.
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "tests/fixtures/models"


def families():
    """transformers' class: model_type."""
    text = (ROOT / "src/model/families/families.cc").read_text()
    return {cls: kind for kind, cls in re.findall(r'^    \{"(\w+)", "(\w+)",', text, re.M)}


def rows(text):
    """Of the tables with a column of fixtures: classes, fixtures, whether devices run them, whether they are trained."""
    on_devices = trained = True
    for line in text.splitlines():
        if line.startswith("On CPUs only"):
            on_devices = False
            trained = "without training" not in line
        cells = re.split(r"\s*\|\s*", line.strip(" |"))
        classes = re.findall(r"`(\w+ForCausalLM)`", cells[1]) if len(cells) == 4 else []
        if classes:
            yield classes, re.findall(r"`([^`]+)`", cells[3]), on_devices, trained


def class_of(fixture):
    config = json.loads((FIXTURES / fixture / "config.json").read_text())
    named = config["architectures"][0]
    return named.replace("ForConditionalGeneration", "ForCausalLM")


def sources(*patterns):
    return "\n".join(p.read_text() for pattern in patterns for p in sorted(ROOT.glob(pattern)))


def check():
    known = families()
    shared = (ROOT / "tests/model/spec_of.h").read_text()
    gradients = shared + sources("tests/train/gradients_test.cc")
    devices = set(re.findall(r'(?:Case\{|plain_case\()"\w+",\s*"(\w+)"', sources("tests/engine/cuda/cuda_cases.h")))
    refused_by_devices = shared + sources("tests/model/supported_test.cc")
    refused_by_training = sources("tests/train/trainer_test.cc")
    page = (ROOT / "docs/reference/families.md").read_text()
    seen = set()
    for classes, fixtures, on_devices, trained in rows(page):
        seen.update(classes)
        here = ", ".join(classes)
        missing = [name for name in fixtures if not (FIXTURES / name).is_dir()]
        yield from (f"{here}: there is no fixture {name}" for name in missing)
        of_fixtures = {class_of(name) for name in fixtures if name not in missing}
        if not of_fixtures:
            yield f"{here}: names no fixture"
        yield from (f"{here}: has a fixture of {cls}" for cls in sorted(of_fixtures - set(classes)))
        for cls in classes:
            if cls not in known:
                yield f"{cls}: src/model/families/families.cc has no such family"
                continue
            kind = f'"{known[cls]}"'
            if trained and kind not in gradients:
                yield f"{cls}: the gradients of {kind} are not tested"
            if on_devices and known[cls] not in devices:
                yield f"{cls}: {kind} has no case for CUDA"
            if not on_devices and kind not in refused_by_devices:
                yield f"{cls}: no test says that devices refuse {kind}"
            if not trained and kind not in refused_by_training:
                yield f"{cls}: no test says that training refuses {kind}"
    yield from (f"{cls}: has no row" for cls in sorted(set(known) - seen))


if __name__ == "__main__":
    problems = list(check())
    for problem in problems:
        print(f"docs/reference/families.md: {problem}")
    if problems:
        sys.exit(1)
    print(f"models: {len(families())} families, every row has its tests")
