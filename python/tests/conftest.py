"""The demo models, and where things are."""

import os
from pathlib import Path

import pytest

import winnow

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "assets/base"
FIXTURES = ROOT / "tests/fixtures/models"
DMS = ROOT / "assets/dms-cr8"
BINARY = Path(os.environ.get("WINNOW_BINARY", ROOT / "build/release/bin/winnow"))


@pytest.fixture(scope="session")
def llm() -> winnow.LLM:
    return winnow.LLM(DMS, threads=2, deterministic=True)


@pytest.fixture(scope="session")
def text() -> str:
    return (ROOT / "assets/demo_prompt.txt").read_text()


@pytest.fixture
def binary() -> Path:
    if not BINARY.exists():
        pytest.skip(f"{BINARY} is not built")
    return BINARY
