"""Pods and callers that mean harm: a condition and an event say what is wrong, and all others are scheduled."""

from __future__ import annotations

import base64
import shutil
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from e2e.kubernetes.bed import Bed
from e2e.kubernetes.hollow import Hollow, node_object
from e2e.kubernetes.replica import Replica, View, pod
from e2e.kubernetes.test_extender import HIVED, hived_pod
from e2e.kubernetes.test_lab import lab
from e2e.test_security import certificate
from managers import eventually

Json = dict[str, Any]
pytestmark = pytest.mark.slow
TOKEN = "a-token-of-kube-scheduler-alone"
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "\n".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]" for i in range(9)
)
STRANGE = {
    "power": {"rota.dev/tasks": "²"},
    "digits": {"rota.dev/tasks": "9" * 5000},
    "letters": {"rota.dev/max-tasks": "abc"},
    "memory": {"rota.dev/gpu-memory": "1e400000000"},
}


def events_of(bed: Bed, name: str) -> list[str]:
    found = bed.admin.items("/api/v1/namespaces/default/events")
    return [str(each["message"]) for each in found if each["involvedObject"]["name"] == name]


def is_told(bed: Bed, view: View, name: str, word: str) -> bool:
    return word in view.waiting_for(name) and any(word in message for message in events_of(bed, name))


@pytest.mark.attack(
    "annotations of pods that are no plain numbers: ², 5,000 digits, abc, 1e400000000",
    stopped_by="the pod gets a condition and an event that name the annotation; the scheduler goes on",
)
def test_strange_annotations_are_named_and_other_pods_are_scheduled(
    bed: Bed, view: View, launch: Callable[..., Replica], kubelets: Callable[..., Hollow]
) -> None:
    kubelets(bed, nodes=1)
    replica = launch(bed)
    for name, notes in STRANGE.items():
        bed.admin.make(pod(name, 1, notes=notes))
    bed.admin.make(pod("plain", 1))

    eventually(lambda: view.node_of("plain"))
    for name, notes in STRANGE.items():
        (annotation,) = notes
        eventually(lambda name=name, word=annotation: is_told(bed, view, name, word))  # type: ignore[misc]
        assert view.node_of(name) is None
    assert replica.process is not None
    assert replica.process.poll() is None
    bed.admin.make(pod("later", 1))
    eventually(lambda: view.node_of("later"))


@pytest.mark.attack(
    "a YAML bomb in HiveD's annotation, and requests to the extender without its token, over plain HTTP or of 33 MiB",
    stopped_by="a bound on values, the extender's token, TLS and a limit of the body; the extender goes on",
)
def test_extender_outlives_bombs_and_strangers(
    bed: Bed, view: View, launch: Callable[..., Replica], kubelets: Callable[..., Hollow], tmp_path: Path
) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    cert, key = certificate(tmp_path)
    (tmp_path / "token").write_text(TOKEN)
    bed.admin.make(node_object("carol", 1))
    kubelets(bed, nodes=0)
    settings = tmp_path / "hived.yaml"
    settings.write_text(_yaml({"settle": "0.3s", **lab(1, 0), "scheduler_name": "hived", "hived_pods": True}))
    guard = ["--token-file", str(tmp_path / "token"), "--tls-cert", str(cert), "--tls-key", str(key)]
    replica = launch(bed, verb="extender", options=["--config", str(settings), *guard])
    bomb, fine = (hived_pod(name, "default", group=f"default/{name}", members=1) for name in ("bomb", "fine"))
    bomb["metadata"]["annotations"][HIVED + "pod-scheduling-spec"] = BOMB
    for each in (bomb, fine):
        bed.admin.make(each)
    eventually(lambda: is_told(bed, view, "bomb", "pod-scheduling-spec"))

    assert replica.url.startswith("https://")
    with httpx.Client(base_url=replica.url, verify=ssl.create_default_context(cafile=str(cert))) as scheduler:
        _strangers_are_refused(scheduler)
        asked = {"Pod": view.pods()["fine"], "NodeNames": ["carol"]}
        basic = {"Authorization": "Basic " + base64.b64encode(f"x:{TOKEN}".encode()).decode()}
        eventually(lambda: scheduler.post(FILTER, json=asked, headers=basic).json().get("NodeNames") == ["carol"])
        refused = scheduler.post(FILTER, json={**asked, "Pod": view.pods()["bomb"]}, headers=basic).json()
        assert refused["NodeNames"] == []
        assert "pod-scheduling-spec" in refused["FailedNodes"]["carol"]
    with pytest.raises(httpx.HTTPError):
        httpx.post(replica.url.replace("https", "http") + FILTER, json=asked, headers=basic)


FILTER = "/v1/extender/filter"


def _strangers_are_refused(scheduler: httpx.Client) -> None:
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    for wrong in ({}, {"Authorization": "Bearer x"}, {"Authorization": "Basic ²"}, {"Authorization": TOKEN}):
        headers = [(name.encode(), value.encode()) for name, value in wrong.items()]
        assert scheduler.post(FILTER, json={}, headers=headers).status_code == 401
    assert scheduler.post(FILTER, content=b" " * (33 << 20), headers=bearer, timeout=30).status_code == 413
    for body in (b"[]", b"{", b'{"Pod": 7}', b'{"Pod": {"metadata": {}}}', b"[" * 5000, b'{"a": ' + b"9" * 5000 + b"}"):
        assert scheduler.post(FILTER, content=body, headers=bearer).status_code == 400, body[:20]


def _yaml(value: Json) -> str:
    import yaml

    return str(yaml.safe_dump(value))
