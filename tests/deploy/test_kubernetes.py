"""The manifests of deploy/kubernetes, as kubectl resolves them: valid, contained, and the same processes as in docker-compose.yml."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from headscope.settings import Settings
from tests.support.compose import PASSWORDS, ROOT, read

FOLDER = ROOT / "deploy" / "kubernetes"
VERSIONS = ("1.33", "1.37")
Object = dict[str, Any]


def resolved(name: str) -> list[Object]:
    """Return the objects of a kustomization."""
    kubectl = Path(sys.executable).parent / "kubectl"
    shown = subprocess.run([kubectl, "kustomize", FOLDER / name], capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    return list(yaml.safe_load_all(shown.stdout))


@pytest.fixture(scope="module", params=["base", "overlays/lab", "overlays/external"])
def objects(request: pytest.FixtureRequest) -> list[Object]:
    return resolved(request.param)


@pytest.fixture(scope="module")
def lab() -> list[Object]:
    return resolved("overlays/lab")


def of(objects: list[Object], *kinds: str) -> dict[str, Object]:
    """Return the objects of some kinds by name."""
    return {one["metadata"]["name"]: one for one in objects if one["kind"] in kinds}


def pods(objects: list[Object]) -> dict[str, Object]:
    """Return the templates of all pods, by the name of what makes them."""
    specs = {name: one["spec"] for name, one in of(objects, "Deployment", "StatefulSet", "CronJob").items()}
    return {name: spec.get("jobTemplate", {"spec": spec})["spec"]["template"] for name, spec in specs.items()}


def container(objects: list[Object], name: str) -> Object:
    (found,) = pods(objects)[name]["spec"]["containers"]
    return found


def nested(value: Any, key: str) -> Iterator[Any]:
    """Yield the values of a key at any depth."""
    if isinstance(value, dict):
        yield from (found for name, found in value.items() if name == key)
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from nested(part, key)


def test_every_object_is_valid(objects: list[Object]) -> None:
    """Under the strict schemas of the oldest and the newest version; KEDA's objects have none."""
    for one in objects:
        for version in VERSIONS if one["apiVersion"] != "keda.sh/v1alpha1" else ():
            kubernetes_validate.validate(one, version, strict=True)
        assert one["kind"] == "Namespace" or one["metadata"]["namespace"] == "headscope"


def test_every_pod_is_contained(objects: list[Object]) -> None:
    """No root, no capabilities, a root file system that is read-only, no token of the API server; limited and probed."""
    for name, pod in pods(objects).items():
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is spec["enableServiceLinks"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        one = container(objects, name)
        assert one["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }
        assert {"cpu", "memory"} <= one["resources"]["requests"].keys()
        assert "memory" in one["resources"]["limits"]
        assert ("livenessProbe" in one) is (name != "upgrade")
        mounted = {volume["name"] for volume in one["volumeMounts"]}
        templates = of(objects, "StatefulSet").get(name, {"spec": {}})["spec"].get("volumeClaimTemplates", [])
        assert mounted == {volume["name"] for volume in [*spec["volumes"], *(one["metadata"] for one in templates)]}


def test_references_are_complete(objects: list[Object]) -> None:
    """Services and policies select pods, and what a pod names is there; docs/how-to/kubernetes.md makes the rest."""
    labels = [pod["metadata"]["labels"] for pod in pods(objects).values()]
    for one in of(objects, "Service").values():
        (selected,) = [pod for pod in labels if one["spec"]["selector"].items() <= pod.items()]
        ports = container(objects, selected["app.kubernetes.io/name"])["ports"]
        assert {port["targetPort"] for port in one["spec"]["ports"]} <= {port["name"] for port in ports}
    for selector in nested([one["spec"] for one in of(objects, "NetworkPolicy").values()], "podSelector"):
        name = selector.get("matchLabels", {}).get("app.kubernetes.io/name")
        assert name is None or name in {*pods(objects), "db"}
    made = {*of(objects, "ConfigMap")}
    assert {name["name"] for name in nested(list(pods(objects).values()), "configMapRef")} <= made
    assert {volume["name"] for volume in nested(list(pods(objects).values()), "configMap")} <= made
    page = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text("utf-8")
    for reference in nested(list(pods(objects).values()), "secretKeyRef"):
        assert f"--from-literal={reference['key']}=" in page
    for secret in nested(objects, "secretName"):
        assert f" {secret} " in page


def test_processes_are_those_of_the_compose_file(lab: list[Object]) -> None:
    """Commands, users and images of other projects are the same, and so are the settings of the database and Redis."""
    services = read(**PASSWORDS)["services"]
    for name in ("api", "worker", "db", "broker", "cache"):
        one, service = container(lab, name), services[name]
        assert one.get("args", one.get("command")) == service["command"]
        assert f"{pods(lab)[name]['spec']['securityContext']['runAsUser']}:" in service["user"]
        variables = {variable["name"]: variable.get("value") for variable in one["env"]}
        same = {variable for variable in variables if variables[variable] and "$" not in variables[variable]}
        assert {variable: variables[variable] for variable in same} == {
            variable: service["environment"][variable] for variable in same
        }
    for name in ("db", "broker", "cache"):
        assert container(lab, name)["image"] == services[name]["image"]
    assert container(lab, "worker-gpu")["args"][:2] == ["headscope", "worker"]


def test_every_setting_is_one(objects: list[Object]) -> None:
    known = {f"HEADSCOPE_{name.upper()}" for name in Settings.model_fields}
    used = {variable["name"] for variables in nested(list(pods(objects).values()), "env") for variable in variables}
    used |= {name for one in of(objects, "ConfigMap").values() for name in one["data"]}
    assert {name for name in used if name.startswith("HEADSCOPE_")} <= known


def test_probes_ask_the_server(lab: list[Object]) -> None:
    """With a host name that it answers to: kubelet sends the pod's address."""
    api = container(lab, "api")
    for kind in ("readinessProbe", "livenessProbe"):
        asked = api[kind]["httpGet"]
        assert (asked["path"], asked["port"]) == ("/healthz", "http")
        assert asked["httpHeaders"] == [{"name": "Host", "value": "localhost"}]
    program = api["startupProbe"]["exec"]["command"][2]
    assert "/readyz" in program
    compile(program, "probe", "exec")


def test_workers_are_scaled_by_a_number_that_servers_report(lab: list[Object]) -> None:
    exported = (ROOT / "docs" / "how-to" / "deploy.md").read_text("utf-8")
    for scaled in of(lab, "ScaledObject").values():
        device = container(lab, scaled["spec"]["scaleTargetRef"]["name"])["args"][-1].partition(":")[0]
        for trigger in scaled["spec"]["triggers"]:
            name, label, value = re.fullmatch(r'max\((\w+){(\w+)="(\w+)"}\)', trigger["metadata"]["query"]).groups()
            assert f"`{name}{{{label}}}`" in exported
            assert (label, value) in (("device", device), ("status", "queued"))


def test_outside_services_replace_those_of_the_cluster() -> None:
    """Nothing of the database, the broker, the cache or the shared volume is left, and their addresses come from the Secret."""
    objects = resolved("overlays/external")
    assert set(pods(objects)) == {"api", "worker", "upgrade"}
    assert not of(objects, "PersistentVolumeClaim")
    for name in pods(objects):
        values = {variable["name"]: variable for variable in container(objects, name)["env"]}
        for setting in ("DATABASE_URL", "REDIS_URL", "CACHE_URL"):
            assert values[f"HEADSCOPE_{setting}"]["valueFrom"]["secretKeyRef"]["name"] == "headscope"
        assert not [variable for variable in values if variable.endswith("PASSWORD")]
