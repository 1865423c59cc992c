"""Files of packaging/ agree with each other and with the pages that name them."""
import json
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


@pytest.mark.parametrize("unit", ["winnow@.service", "routers/winnow-router.service"])
def test_units_start_again_however_often_they_failed(unit):
    text = (ROOT / "packaging" / unit).read_text()
    before, service = re.sub(r"^#.*\n", "", text, flags=re.M).split("[Service]\n")
    assert "\nStartLimitIntervalSec=0\n" in before  # else five failures in 10 s are the last
    assert re.search(r"^Restart=(on-failure|always)\nRestartSec=\d+$", service, re.M)


def test_prefixes_of_two_versions_fit_in_the_claim():
    text = (MANIFESTS / "kubernetes.yaml").read_text()
    size = int(re.search(r"--cache-dir-size=(\d+)", text)[1])
    assert 2 * size < int(re.search(r"storage: (\d+)Gi", text)[1])


def test_the_router_of_the_unit_is_started_as_the_page_says():
    def flags(text, end):
        command = text[text.index("vllm-router --host"):]
        return command[:command.index(end)].replace("\\\n", " ").split()
    unit = (MANIFESTS / "winnow-router.service").read_text()
    page = (ROOT / "docs" / "many-devices.md").read_text()
    assert flags(unit, "$SERVERS") == flags(page, "--worker-urls")
    assert flags(unit, "$SERVERS")[:3] == ["vllm-router", "--host", "127.0.0.1"]  # who reaches it may add servers


def test_the_manifests_router_changes_nothing_without_a_key():
    text = (MANIFESTS / "kubernetes.yaml").read_text()
    command = text[text.index("sglang-router launch"):text.index("readinessProbe: {httpGet: {path: /readiness")]
    assert "--control-plane-api-keys router:router:admin:$(cat /keys/router)" in command


def test_the_dashboard_shows_the_chosen_models_and_servers():
    board = json.loads((ROOT / "packaging" / "grafana.json").read_text())
    assert {"model", "instance"} <= {variable["name"] for variable in board["templating"]["list"]}
    for panel in board["panels"]:
        for target in panel["targets"]:
            asked = re.findall(r"winnow_\w+(\{[^}]*\})?", target["expr"])
            assert asked and all('model=~"$model",instance=~"$instance"' in labels for labels in asked), target
