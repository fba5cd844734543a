"""Compares Rota's placements with kube-scheduler's filters on random clusters and pods.

What Rota binds, kube-scheduler has to accept: it gets a copy of the same cluster and pods, each pod pinned to the node
that Rota chose and each volume kept for the same claim, and schedules them alone. Pods that Rota does not place are
given to it without a pin; those that it places are counted as missed, which is no error: all pods of a gang start
together or not at all.

    python -m e2e.kubernetes.differential --cases 2000
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from drivers.kubernetes.devices.cases import class_object
from e2e.kubernetes.bed import Bed, KubeError, binaries
from e2e.kubernetes.random_claims import kept_claim
from e2e.kubernetes.random_pods import CLAIMS_SINCE, COPY, CopyOf, copy_of
from e2e.kubernetes.replica import Replica
from ports import free_port
from rota.drivers.kubernetes.install.manifests import InstallOptions, manifests

Json = dict[str, Any]
AT_ONCE = 40
"""Cases in the cluster at a time."""
DECIDED_S = float(os.environ.get("ROTA_DECIDED_S", "30"))
"""How long Rota may take for all pods of a batch, and kube-scheduler for its copies."""
SETTLED_S = 15.0
"""How long a pod has to wait, with a reason, until it counts as waiting."""
PIN = "pin"
CONTROLLERS = "persistentvolume-binder,resourceclaim-controller"
MADE_FIRST = (
    *("Namespace", "StorageClass", "PersistentVolume", "PersistentVolumeClaim"),
    *("ResourceSlice", "ResourceClaim", "ResourceClaimTemplate"),
)
DROPPED = ("PersistentVolume", "StorageClass", "ResourceSlice")
NOW = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}


@dataclass(slots=True)
class Outcome:
    """What came of all cases."""

    placed: int = 0
    waiting: int = 0
    missed: list[int] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Cases that Rota placed and kube-scheduler did not, in words."""


def scheduler_config(bed: Bed, folder: Path, minor: int) -> Path:
    """Write the configuration of a kube-scheduler that looks at every node."""
    config: Json = {
        "apiVersion": f"kubescheduler.config.k8s.io/{'v1' if minor >= 25 else 'v1beta1'}",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "percentageOfNodesToScore": 100,
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 1,
        "clientConnection": {"kubeconfig": str(bed.kubeconfig("admin-token")), "qps": 500, "burst": 500},
    }
    if minor < 25:
        port = free_port()
        config |= {"healthzBindAddress": f"127.0.0.1:{port}", "metricsBindAddress": f"127.0.0.1:{port}"}
    path = folder / "scheduler.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


class Differential:
    """One control plane with both schedulers."""

    def __init__(self, bed: Bed, folder: Path) -> None:
        self._bed = bed
        self._folder = folder
        self._admin = bed.admin
        self._minor = bed.minor
        self._pool = ThreadPoolExecutor(4)
        self._stock: subprocess.Popen[bytes] | None = None
        self._rota = Replica(bed, folder / "rota", {"gang_timeout": f"{DECIDED_S:.0f}s"})

    def start(self) -> None:
        for value in manifests(InstallOptions(image="rota:test", release=(1, self._minor))):
            if value["kind"] != "Deployment":
                self._admin.make(value)
        program = binaries("kube-scheduler")["kube-scheduler"]
        options = [f"--config={scheduler_config(self._bed, self._folder, self._minor)}", "--bind-address=127.0.0.1"]
        options.append(f"--secure-port={free_port()}")
        options += [f"--authentication-kubeconfig={self._bed.kubeconfig('admin-token')}"]
        options += [f"--authorization-kubeconfig={self._bed.kubeconfig('admin-token')}"]
        with (self._folder / "scheduler.log").open("ab") as log:
            self._stock = subprocess.Popen([str(program), *options], stdout=log, stderr=log)
        if self._minor >= CLAIMS_SINCE:
            self._admin.make(class_object())
        first = copy_of(0, "first", "none", self._minor).nodes[0]
        self._admin.make(first)
        self._rota.start()

    def stop(self) -> None:
        if self._rota.process is not None:
            self._rota.kill()
        if self._stock is not None:
            self._stock.kill()
            self._stock.wait()
        self._pool.shutdown()

    def run(self, seeds: Sequence[int], outcome: Outcome) -> None:
        """Try a batch of cases."""
        mine = {seed: copy_of(seed, f"r{seed}", "rota", self._minor) for seed in seeds}
        theirs = {seed: copy_of(seed, f"s{seed}", "default-scheduler", self._minor) for seed in seeds}
        self._make(mine.values(), theirs.values())
        self._each(self._admin.make, [pod for case in mine.values() for pod in case.new])
        nodes = self._decided(mine)
        for seed in seeds:
            self._promise_volumes(mine[seed], theirs[seed])
            if nodes[seed]:
                self._promise_devices(mine[seed], theirs[seed])
        self._each(self._admin.make, [pod for seed in seeds for pod in twins(mine[seed], theirs[seed], nodes[seed])])
        accepted = self._accepted(theirs, {seed for seed in seeds if nodes[seed]})
        for seed in seeds:
            if nodes[seed] and not accepted[seed]:
                outcome.refused.append(f"case {seed}: {nodes[seed]}: {self._words(theirs[seed])}")
            elif not nodes[seed] and accepted[seed]:
                outcome.missed.append(seed)
            outcome.placed += bool(nodes[seed])
            outcome.waiting += not nodes[seed]
        self._clear([*mine.values(), *theirs.values()])

    def _promise_volumes(self, mine: CopyOf, theirs: CopyOf) -> None:
        """Keep each volume for the claim that Rota chose it for: one by one, other choices can lead nowhere."""
        if not any(each["kind"] == "PersistentVolumeClaim" for each in mine.others):
            return
        for claim in self._admin.items(f"/api/v1/namespaces/{mine.mark}/persistentvolumeclaims"):
            name = claim["spec"].get("volumeName")
            if name:
                what = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": claim["metadata"]["name"]}
                twin = f"/api/v1/persistentvolumes/{theirs.mark}{name.removeprefix(mine.mark)}"
                self._admin.patch(twin, {"spec": {"claimRef": {**what, "namespace": theirs.mark}}})

    def _promise_devices(self, mine: CopyOf, theirs: CopyOf) -> None:
        """Keep the devices for the claims that Rota gave them to, for the same reason; all else is checked."""
        if not any(pod["spec"].get("resourceClaims") for pod in mine.new):
            return
        claims = self._admin.items(f"/apis/resource.k8s.io/v1/namespaces/{mine.mark}/resourceclaims")
        by_name = {claim["metadata"]["name"]: claim for claim in claims}
        by_pod = {each["name"]: claim for claim in claims for each in claim["metadata"].get("ownerReferences", ())}
        kept: dict[str, Json] = {}
        for at, pod in enumerate(mine.new):
            (entry,) = pod["spec"]["resourceClaims"]
            claim = by_name.get(entry.get("resourceClaimName", "")) or by_pod[pod["metadata"]["name"]]
            name = f"kept-{claim['metadata']['name']}"
            kept[name] = kept_claim(claim, mine.mark, name, theirs.mark)
            entries = [{"name": entry["name"], "resourceClaimName": name}]
            theirs.new[at] = {**theirs.new[at], "spec": {**theirs.new[at]["spec"], "resourceClaims": entries}}
        self._each(self._admin.make, list(kept.values()))

    def _make(self, *copies: Any) -> None:
        cases: list[CopyOf] = [case for group in copies for case in group]
        self._each(self._admin.make, [each for case in cases for each in case.nodes])
        for kind in MADE_FIRST:
            self._each(self._admin.make, [each for case in cases for each in case.others if each["kind"] == kind])
        self._each(self._taint, [each["metadata"]["name"] for case in cases for each in case.nodes])
        self._each(self._admin.make, [each for case in cases for each in case.there])

    def _taint(self, name: str) -> None:
        """Remove the taints of a new node; one on kube-scheduler's nodes pins pods, since filters count such nodes."""
        pin = [{"key": PIN, "value": name, "effect": "NoSchedule"}] if name.startswith("s") else None
        self._admin.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": pin}})

    def _each(self, act: Callable[[Any], object], values: Sequence[Any]) -> None:
        list(self._pool.map(act, values))

    def _pods(self, case: CopyOf) -> list[Json]:
        found = self._admin.items(f"/api/v1/namespaces/{case.mark}/pods")
        return sorted(
            (pod for pod in found if pod["metadata"]["name"].startswith("new-")),
            key=lambda pod: pod["metadata"]["name"],
        )

    def _decided(self, cases: dict[int, CopyOf]) -> dict[int, list[str]]:
        """The nodes that Rota gave the pods of each case; none if it says why they wait."""
        found: dict[int, list[str]] = {}
        begun_s = time.monotonic()
        while len(found) < len(cases):
            for seed in [seed for seed in cases if seed not in found]:
                pods = self._pods(cases[seed])
                names = [pod["spec"].get("nodeName") for pod in pods]
                if len(names) < len(cases[seed].new):
                    raise AssertionError(f"Rota evicted pods of case {seed}: {self._rota.log.read_text()[-3000:]}")
                if all(names):
                    found[seed] = names
                elif not any(names) and time.monotonic() > begun_s + SETTLED_S and all(map(_says_why, pods)):
                    found[seed] = []
            if time.monotonic() > begun_s + DECIDED_S:
                undecided = [seed for seed in cases if seed not in found]
                said = self._rota.log.read_text()[-3000:]
                raise AssertionError(f"Rota decided nothing about {undecided}: {said}")
            time.sleep(0.5)
        return found

    def _accepted(self, cases: dict[int, CopyOf], awaited: set[int]) -> dict[int, bool]:
        """Whether kube-scheduler has bound all pods of each case; it gets time for those that it should bind."""
        until_s = time.monotonic() + DECIDED_S
        found = dict.fromkeys(cases, False)
        while True:
            for seed in [seed for seed, is_bound in found.items() if not is_bound]:
                found[seed] = all(pod["spec"].get("nodeName") for pod in self._pods(cases[seed]))
            if all(found[seed] for seed in awaited) or time.monotonic() > until_s:
                return found
            time.sleep(0.5)

    def _words(self, case: CopyOf) -> str:
        conditions = [each for pod in self._pods(case) for each in pod["status"].get("conditions", ())]
        return "; ".join(each.get("message", "") for each in conditions if each["type"] == "PodScheduled")

    def _clear(self, cases: Sequence[CopyOf]) -> None:
        def clear(case: CopyOf) -> None:
            where = f"/api/v1/namespaces/{case.mark}"
            for path in (f"{where}/pods", f"{where}/persistentvolumeclaims"):
                self._admin.delete(path, NOW)
            if any(each["kind"].startswith("ResourceClaim") for each in case.others):
                self._admin.delete(f"/apis/resource.k8s.io/v1/namespaces/{case.mark}/resourceclaims", NOW)

        def drop(path: str) -> None:
            try:
                self._admin.delete(path, NOW)
            except KubeError as error:
                if error.status != 404:
                    raise

        self._each(clear, cases)
        self._admin.delete(f"/api/v1/nodes?labelSelector={COPY}%21%3Dfirst", NOW)
        self._each(
            drop,
            [
                f"{self._admin.path_of(each)}/{each['metadata']['name']}"
                for case in cases
                for each in case.others
                if each["kind"] in DROPPED
            ],
        )


def _says_why(pod: Json) -> bool:
    return any(each["type"] == "PodScheduled" for each in pod["status"].get("conditions", ()))


def twins(mine: CopyOf, theirs: CopyOf, nodes: Sequence[str]) -> list[Json]:
    """The pods of the other copy, pinned to the same nodes if they were placed."""
    made = []
    for index, pod in enumerate(theirs.new):
        spec = dict(pod["spec"])
        spec["tolerations"] = [{"key": PIN, "operator": "Exists"}]
        if nodes:
            name = theirs.mark + nodes[index].removeprefix(mine.mark)
            spec["tolerations"] = [{"key": PIN, "value": name, "effect": "NoSchedule"}]
        made.append({**pod, "spec": spec})
    return made


def differ(cases: int, seed: int = 0, at_once: int = AT_ONCE, say: Callable[[str], None] = print) -> Outcome:
    """Run so many cases on a control plane of their own."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory(prefix="rota-differ-", ignore_cleanup_errors=True) as folder:
        bed = Bed(Path(folder) / "bed", controllers=True, only=CONTROLLERS)
        (Path(folder) / "bed").mkdir()
        both = None
        try:
            both = Differential(bed.start(), Path(folder))
            both.start()
            for first in range(seed, seed + cases, at_once):
                began_s = time.monotonic()
                both.run(range(first, min(first + at_once, seed + cases)), outcome)
                took_s = time.monotonic() - began_s
                say(
                    f"{first + at_once - seed:5} cases: {outcome.placed} placed, {len(outcome.refused)} refused by "
                    f"kube-scheduler, {outcome.waiting} waiting ({len(outcome.missed)} missed), {took_s:.0f} s"
                )
                for words in outcome.refused:
                    say(f"  {words}")
        finally:
            if both is not None:
                both.stop()
            bed.stop()
    return outcome


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--cases", type=int, default=2000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--at-once", type=int, default=AT_ONCE)
    asked = options.parse_args()
    came = differ(asked.cases, asked.seed, asked.at_once, lambda line: print(line, flush=True))
    raise SystemExit(1 if came.refused else 0)
