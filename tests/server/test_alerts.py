"""packaging/alerts.yml raises its alerts, as Prometheus's own tool computes them."""
import shutil
import subprocess

import pytest

from conftest import ROOT


@pytest.mark.skipif(not shutil.which("promtool"), reason="there is no promtool (Debian's package prometheus)")
def test_alerts_fire():
    told = subprocess.run(["promtool", "test", "rules", ROOT / "tests" / "server" / "alerts_test.yml"],
                          capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr
