"""Writes gguf_blocks.json: random blocks of ggml's types, and the values that PyPI's `gguf` decodes them
to. Needs `pip install gguf`.

    python tests/checkpoint/make_gguf_cases.py
"""

import json
import pathlib

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

TYPES = ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4",
         "Q2_K", "Q3_K"]
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
          "IQ4_NL": [0], "IQ4_XS": [0], "Q2_K": [80, 82], "Q3_K": [108]}  # where a block has its scales: these must be numbers

random = np.random.default_rng(32)
cases = {}
for name in TYPES:
    kind = GGMLQuantizationType[name]
    elements, size = GGML_QUANT_SIZES[kind]
    count = 4 if elements > 32 else 8 if elements > 1 else 64
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    for at in HALVES.get(name, []):
        blocks[:, at:at + 2] = random.normal(0, 0.02, (count, 1)).astype(np.float16).view(np.uint8)
    if name == "MXFP4":
        blocks[:, 0] = random.integers(110, 130, count)
    if name in ("F16", "BF16"):
        values = random.normal(0, 1, (count, 1)).astype(np.float32)
        blocks = quants.quantize(values, kind)
    values = quants.dequantize(blocks, kind).reshape(-1).astype(np.float32)
    assert np.isfinite(values).all(), name
    cases[str(int(kind))] = {"name": name, "blocks": blocks.tobytes().hex(), "bits": values.view(np.uint32).tolist()}
path = pathlib.Path(__file__).parent / "gguf_blocks.json"
path.write_text(json.dumps(cases, separators=(",", ":")) + "\n")
