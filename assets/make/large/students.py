"""students.py WORK: the students of train.py as NAME=DIR, one a line."""

import json
import sys
from pathlib import Path

for name, folder in json.loads((Path(sys.argv[1]) / "models.json").read_text()).items():
    if name != "base":
        print(f"{name}={folder}")
