"""What the tests of ranks that are processes share."""
import json
import pathlib
import re
import shutil
import tempfile
import time
import unittest
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = "tests/fixtures/models/dms-own"


class Processes(unittest.TestCase):
    winnow = ""  # the program

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.output = self.in_folder("logits.safetensors")

    def in_folder(self, name: str) -> pathlib.Path:
        return pathlib.Path(self.folder.name) / name

    def logits(self, *more: str) -> list[str]:
        return [self.winnow, "logits", "--model", MODEL, "--tokens", "1,2,3,4,5,6,7,8,9,10", "--dtype", "fp32",
                "--threads", "1", "--output", str(self.output), *more]

    def serving(self) -> list[str]:
        return [self.winnow, "serve", "--model", "assets/dms-cr8", "--port", "0", "--tensor-parallel", "2",
                "--threads", "1"]

    def ask(self, port: int) -> dict:
        body = json.dumps({"prompt": "The sea was", "max_tokens": 4, "temperature": 0}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body,
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def training(self, out: str, *more: str, steps: int = 12) -> list[str]:
        return [self.winnow, "train", "--init", str(self.shape()), "--out", str(self.in_folder(out)),
                "--data", str(self.in_folder("data.jsonl")), "--length", "32", "--batch", "4", "--steps", str(steps),
                "--save-every", "5", "--dtype", "fp32", "--threads", "1", "--data-parallel", "2", *more]

    def shape(self) -> pathlib.Path:
        """A model of a few numbers, and something to read."""
        shape = self.in_folder("shape")
        if not shape.exists():
            shape.mkdir()
            for name in ("tokenizer.json", "tokenizer_config.json"):
                shutil.copy(ROOT / "assets/base" / name, shape)
            config = json.loads((ROOT / "assets/base/config.json").read_text())
            config |= {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
                       "num_attention_heads": 4, "head_dim": 8, "torch_dtype": "float32"}
            (shape / "config.json").write_text(json.dumps(config))
            lines = [json.dumps({"text": f"Number {i} is followed by {i + 1}."}) for i in range(60)]
            self.in_folder("data.jsonl").write_text("\n".join(lines) + "\n")
        return shape

    def wait_for_state(self, out: str) -> None:
        """Until a training run has written its state."""
        for _ in range(600):
            if (self.in_folder(out) / "training/state.safetensors").exists():
                return
            time.sleep(0.1)
        self.fail(f"{out}: no state")

    def losses(self, out: str) -> list[tuple[int, float]]:
        lines = (self.in_folder(out) / "training/metrics.jsonl").read_text().split("\n")[:-1]  # whole ones
        return [(line["step"], line["loss"]) for line in map(json.loads, lines)]

    def wait_for_text(self, pattern: str, log: pathlib.Path) -> re.Match:
        for _ in range(600):
            found = re.search(pattern, log.read_text())
            if found:
                return found
            time.sleep(0.1)
        self.fail(log.read_text())

    def wait_for_port(self, log: pathlib.Path) -> int:
        return int(self.wait_for_text(r'"?port"?[=:] ?(\d+)', log)[1])
