"""Random Kubernetes objects of every kind, with nonsense in any place: Rota must outlive all of them.

10,000 objects go through everything that reads objects. Then a part of them goes to a real API server beside a running
Rota: what the server admits reaches Rota's watches. Rota must run on, and schedule a plain pod at the end.

usage: tools/fuzz.py [--objects N] [--served N] [--seed N]
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import httpx

from drivers.kubernetes.fuzz import fuzz
from drivers.kubernetes.strange_objects import STRANGE_KINDS, WORDS, any_notes
from e2e.kubernetes.bed import Bed, KubeError, NoCluster, made_bed
from e2e.kubernetes.conftest import NAMESPACE, prepared
from e2e.kubernetes.hollow import Hollow, node_object
from e2e.kubernetes.replica import Replica, configure, pod
from managers import eventually

Json = dict[str, Any]
VERSIONS = {
    **dict.fromkeys(("Pod", "Node", "Namespace", "PersistentVolume", "PersistentVolumeClaim", "ConfigMap"), "v1"),
    **dict.fromkeys(("StorageClass", "CSINode"), "storage.k8s.io/v1"),
    **dict.fromkeys(("ResourceSlice", "DeviceClass", "ResourceClaim"), "resource.k8s.io/v1"),
    **dict.fromkeys(("PodGroup", "Queue", "Topology", "SchedulingPolicy"), "rota.dev/v1alpha1"),
}
PAUSE_EVERY = 100
PAGE = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--served", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    begun_s = time.perf_counter()
    seen = fuzz(options.objects, options.seed)
    took_s = time.perf_counter() - begun_s
    print(f"{seen.total()} objects of {len(seen)} kinds, nothing raised, {took_s:.1f} s")
    if options.served:
        try:
            for bed in made_bed(controllers=True):
                on_server(prepared(bed), options.served, options.seed)
        except NoCluster as error:
            print(f"without a server: {error}")


def on_server(bed: Bed, objects: int, seed: int) -> None:
    """Create objects beside a running Rota."""
    rng = random.Random(seed)
    bed.admin.make(node_object("plain", 8))
    hollow = Hollow(bed.kubeconfig("admin-token"), beats=True, only="plain").start()
    configure(bed)
    with tempfile.TemporaryDirectory() as folder:
        replica = Replica(bed, Path(folder), options=["--port", "0"]).start()
        told: Counter[bool] = Counter()
        for number in range(objects):
            told[create(bed, rng, number)] += 1
            if number % PAUSE_EVERY == 0:
                check(replica)
        configure(bed)
        delete_pods(bed)  # those that make sense hold the node
        bed.admin.make(pod("good", 1, nodeSelector={"kubernetes.io/hostname": "plain"}))
        path = "/api/v1/namespaces/default/pods/good"
        try:
            eventually(lambda: bed.admin.get(path)["spec"].get("nodeName") or check(replica), within_s=120)
        except AssertionError as error:
            said = [bed.admin.get(path)["status"], bed.admin.get("/api/v1/nodes/plain")["status"].get("conditions")]
            raise AssertionError(f"a plain pod does not start: {said}\n{replica.log.read_text()[-3000:]}") from error
        check(replica)
        replica.stop()
    hollow.stop()
    print(f"{told[True]} of {objects} objects were admitted by 1.{bed.minor}; Rota runs on and schedules")


def delete_pods(bed: Bed) -> None:
    """Delete all pods, a page at a time: the server gives up on thousands in one request. Old pages begin again."""
    path, more = "/api/v1/namespaces/default/pods", ""
    while True:
        try:
            page = bed.admin.get(f"{path}?limit={PAGE}&continue={more}")
        except KubeError as error:
            if error.status != HTTPStatus.GONE:
                raise
            more = ""
            continue
        for each in page["items"]:
            with suppress(KubeError):  # it is gone already
                bed.admin.delete(f"{path}/{each['metadata']['name']}", {"gracePeriodSeconds": 0})
        more = page["metadata"].get("continue", "")
        if not more:
            return


def create(bed: Bed, rng: random.Random, number: int) -> bool:
    """Create one object; return whether the server admits it."""
    kind = rng.choice([*STRANGE_KINDS, "Pod", "Pod", "Pod"])
    value = STRANGE_KINDS[kind](rng)
    if not isinstance(value, dict):
        return False
    value |= {"apiVersion": VERSIONS[kind], "kind": kind}
    given = value.get("metadata")
    meta = {
        name: each
        for name, each in (given if isinstance(given, dict) else {}).items()
        if name not in ("uid", "resourceVersion")
    }
    value["metadata"] = {**meta, "name": f"{kind.lower()}-{number}", "namespace": "default"}
    if kind == "Pod" and rng.random() < 0.6:  # one that the server admits, with strange annotations
        value = pod(f"strange-{number}", 1, notes=any_notes(rng))
    if kind == "ConfigMap":
        value["metadata"] |= {"name": "rota", "namespace": NAMESPACE}
        value["data"] = {"rota.yaml": rng.choice(WORDS)}
    try:
        bed.admin.make(value)
    except (KubeError, httpx.HTTPError, ValueError, UnicodeError, RecursionError):
        return False
    return True


def check(replica: Replica) -> bool:
    """Fail with Rota's last words if it has ended."""
    assert replica.process is not None
    assert replica.process.poll() is None, replica.log.read_text()[-3000:]
    return False


if __name__ == "__main__":
    main()
