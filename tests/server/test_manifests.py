"""The command of docs/serving-production.md for a second model changes every place in the manifests."""
import re
import subprocess

import pytest

from conftest import ROOT

MANIFESTS = ROOT / "packaging" / "routers"


def second_model(name):
    """The manifest after the page's `sed`, for a model `second`, without comments: (before, after)."""
    page = (ROOT / "docs" / "serving-production.md").read_text()
    script = re.search(r"sed -E '([^']+)' packaging/routers/kubernetes\.yaml", page)[1].replace("NAME", "second")
    told = subprocess.run(["sed", "-E", script, MANIFESTS / name], capture_output=True, text=True, check=True)
    return [re.sub(r"(^| )#.*", "", text, flags=re.M) for text in ((MANIFESTS / name).read_text(), told.stdout)]


# What both models share: the image, the volumes, the keys, and the job's name in Prometheus.
SHARED = re.compile(r"image: winnow:cuda|secretName: winnow-keys|job=\"winnow\"|winnow_sequences_\w+|name: models|mountPath: /model|claimName: models")


@pytest.mark.parametrize("name", ["kubernetes.yaml", "keda.yaml"])
def test_a_second_model_shares_no_name_with_the_first(name):
    before, after = second_model(name)
    assert len(before.splitlines()) == len(after.splitlines())
    assert SHARED.findall(before) == SHARED.findall(after)
    left = SHARED.sub("", after)
    assert re.findall(r"\bwinnow\b(?!-second)", left) == []
    assert re.findall(r"\bmodel(?:-name=|: |=\"|: &)model\b|subPath: model\b", left) == []


def test_labels_of_the_second_model_are_what_prometheus_and_the_router_look_for():
    _, after = second_model("kubernetes.yaml")
    assert "labels: {app: winnow-second, model: second}" in after
    assert "--selector app=winnow-second " in after
    assert "--model-name=second" in after and "subPath: second," in after
    assert 'model="second"' in second_model("keda.yaml")[1]
