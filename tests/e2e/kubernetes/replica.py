"""Rota as a process beside a test's control plane, and pods as tests describe them."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

import forked
from e2e.kubernetes.bed import READY_S, Bed, Kube
from managers import eventually

Json = dict[str, Any]
QUICK = {"settle": "0.3s", "gang_timeout": "10s", "linger": "5s", "lost_after": "2s"}
"""Settings under which nobody waits for long."""


class Replica:
    """One replica of Rota. Its folder outlives it."""

    def __init__(
        self,
        bed: Bed,
        folder: Path,
        settings: Json | None = None,
        *,
        options: Sequence[str] = (),
        kubeconfig: Path | None = None,
        verb: str = "run",
    ) -> None:
        self._verb = verb
        self._kubeconfig = kubeconfig or bed.kubeconfig()
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "settings.yaml"
        config.write_text(yaml.safe_dump({**QUICK, **(settings or {})}))
        alone = ["--no-leader-election"] if verb == "run" else []
        self._options = list(options) or ["--config", str(config), *alone]
        self.log = folder / "rota.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def launch(self) -> None:
        """Start it and do not wait."""
        command = [
            "k8s",
            self._verb,
            "--kubeconfig",
            str(self._kubeconfig),
            "--data",
            str(self.folder / "data"),
        ]
        with self.log.open("ab") as log:
            self.process = forked.popen([*command, "--port", "0", *self._options], stderr=log, stdout=log)

    def start(self) -> Replica:
        """Start it, and wait until it schedules."""
        begun = self.log.stat().st_size if self.log.exists() else 0
        self.launch()

        def ready() -> bool:
            assert self.process is not None
            said = self.log.read_text()[begun:]
            assert self.process.poll() is None, said[-3000:]
            if "answers at " in said:
                self.url = said.split("answers at ")[1].split(";")[0]
            return "rota schedules" in said

        eventually(ready, within_s=READY_S)
        return self

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)


def configure(bed: Bed, **settings: Any) -> None:
    """Put settings into the ConfigMap that Rota follows."""
    value = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "rota", "namespace": "rota-system"},
        "data": {"rota.yaml": yaml.safe_dump({**QUICK, **settings})},
    }
    bed.admin.make(value)


def pod(name: str, gpus: int = 1, *, namespace: str = "default", notes: Json | None = None, **spec: Any) -> Json:
    """A pod that asks for devices and does nothing."""
    labels = spec.pop("labels", {})
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    if "requests" in spec:
        resources["requests"] = spec.pop("requests")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels, "annotations": notes or {}},
        "spec": {
            "schedulerName": "rota",
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "example/none:1", "resources": resources}],
            **spec,
        },
    }


def gang(name: str, tasks: int, gpus: int = 1, **more: Any) -> list[Json]:
    """Pods that start together."""
    labels = {"rota.dev/job": name, "rota.dev/tasks": str(tasks), **more.pop("labels", {})}
    return [pod(f"{name}-{number}", gpus, labels=labels, **more) for number in range(tasks)]


def job(
    name: str, tasks: int, gpus: int = 1, *, namespace: str = "default", notes: Json | None = None, **spec: Any
) -> Json:
    """A Job whose pods start together, and are created again when they are evicted."""
    template = pod(name, gpus, namespace=namespace, notes=notes, **spec)
    template["spec"]["restartPolicy"] = "Never"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "parallelism": tasks,
            "completions": tasks,
            "backoffLimit": 100,
            "template": {"metadata": {"annotations": notes or {}}, "spec": template["spec"]},
        },
    }


def rota(bed: Bed, *args: str) -> subprocess.CompletedProcess[str]:
    """A command on a cluster, as a user of it would run it."""
    env = {**os.environ, "KUBECONFIG": str(bed.kubeconfig("admin-token"))}
    return forked.run(["--context", "test", *args], env=env)


class View:
    """What of a cluster tests ask about."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    def pods(self, namespace: str = "default") -> dict[str, Json]:
        return {each["metadata"]["name"]: each for each in self._kube.items(f"/api/v1/namespaces/{namespace}/pods")}

    def node_of(self, name: str, namespace: str = "default") -> str | None:
        found: str | None = self.pods(namespace)[name]["spec"].get("nodeName")
        return found

    def bound(self, prefix: str, namespace: str = "default") -> dict[str, str]:
        """Pods with a node, by name."""
        return {
            name: each["spec"]["nodeName"]
            for name, each in self.pods(namespace).items()
            if name.startswith(prefix) and each["spec"].get("nodeName")
        }

    def running(self, prefix: str) -> list[Json]:
        """Pods that run and were not told to go."""
        return [
            each
            for name, each in self.pods().items()
            if name.startswith(f"{prefix}-")
            and each["status"]["phase"] == "Running"
            and "deletionTimestamp" not in each["metadata"]
        ]

    def waiting_for(self, name: str, namespace: str = "default") -> str:
        """What the pod's condition says."""
        for each in self.pods(namespace)[name]["status"].get("conditions", ()):
            if each["type"] == "PodScheduled" and each["status"] == "False":
                return str(each["message"])
        return ""

    def gets_reason(self, name: str, words: str, namespace: str = "default", *, within_s: float = 120.0) -> str:
        """Wait until the condition of a pod has these words; reasons that pass by, as of a retry, may come before."""
        said: list[str] = [""]

        def is_said() -> str:
            said[0] = self.waiting_for(name, namespace)
            return said[0] if words in said[0] else ""

        try:
            return eventually(is_said, within_s=within_s)
        except AssertionError:
            raise AssertionError(f"{name} says {said[0]!r}, not {words!r}, after {within_s} s") from None

    def promised_twice(self) -> list[tuple[str, str]]:
        """Devices that two pods which have not ended were both given."""
        seen: set[tuple[str, str]] = set()
        twice = []
        for each in self._kube.items("/api/v1/pods"):
            if each["status"].get("phase") in ("Succeeded", "Failed") or not each["spec"].get("nodeName"):
                continue
            for device in (each["metadata"].get("annotations") or {}).get("rota.dev/devices", "").split(","):
                place = (each["spec"]["nodeName"], device)
                if device and place in seen:
                    twice.append(place)
                seen.add(place)
        return twice


def provisioning_type() -> Json:
    """The ProvisioningRequest type as the autoscaler's own definition has it, but for its schema's details."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "provisioningrequests.autoscaling.x-k8s.io",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/autoscaler/pull/5848"},
        },
        "spec": {
            "group": "autoscaling.x-k8s.io",
            "scope": "Namespaced",
            "names": {"kind": "ProvisioningRequest", "plural": "provisioningrequests"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
