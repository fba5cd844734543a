"""Rate at which Rota binds pods on a real API server, against raw binds and the stock kube-scheduler in one run.

1,000 hollow nodes of 16 GPUs; 5,000 one-pod jobs and 500 gangs of eight, all created before the scheduler starts. A
rate is pods over the time from the first to the last bind, as a watch of the API server sees them. All processes share
the machine's cores, so only ratios within one run are meaningful. Then, separately: the start-up time of Rota while the
one-pod jobs run, from the start of its process until it schedules.

With `--only waiting`: all devices are taken, and the pods wait; the memory, the time of a step, and the CPU of Rota
while nothing happens, in each of three minutes.

usage: bench/kubernetes.py [--nodes N] [--pods N] [--gangs N] [--only start|rates|waiting]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from kubernetes_rows.rota_process import cpu_s, pass_ms, start_rota, start_s, stop, tree_cpu_s

from e2e.kubernetes.bed import Bed, NoCluster, binaries
from e2e.kubernetes.hollow import node_object
from e2e.kubernetes.replica import gang, pod
from ports import free_port
from rota.core.errors import Unavailable
from rota.drivers.kubernetes.api.client import Api
from rota.drivers.kubernetes.api.connection import connect
from rota.drivers.kubernetes.install.manifests import InstallOptions, manifests

Json = dict[str, Any]
GANG = 8
PER_NODE = 16
AT_ONCE = 64
LONGEST_S = 600.0
SETTLE_S = 20.0
"""After the last reason, its answers are still read."""
IDLE_S = 60.0
IDLE_TIMES = 3
PODS = "/api/v1/namespaces/default/pods"


def pods_for(scheduler: str, alone: int, gangs: int) -> list[Json]:
    made = [pod(f"p{number}", 1) for number in range(alone)]
    for number in range(gangs):
        made += gang(f"g{number}", GANG, 1)
    for value in made:
        value["spec"]["schedulerName"] = scheduler
    return made


async def in_parallel(jobs: Sequence[Callable[[], Any]]) -> None:
    """Run all calls with a limited number at a time."""
    left = iter(jobs)

    async def worker() -> None:
        for job in left:
            await job()

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


class Field:
    """The API server with its nodes and pods."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.api = Api(connect(None, bed.kubeconfig("admin-token")), connections=AT_ONCE)

    async def make(self, path: str, values: list[Json]) -> float:
        begun = time.perf_counter()
        await in_parallel([partial(self.api.post, path, value) for value in values])
        return len(values) / (time.perf_counter() - begun)

    async def clear(self) -> None:
        pods, _ = await self.api.everything("/api/v1/pods")
        now = {"gracePeriodSeconds": 0}
        paths = [f"/api/v1/namespaces/default/pods/{value['metadata']['name']}" for value in pods]
        await in_parallel([partial(self.api.delete, path, now) for path in paths])

    async def bound(self, pods: int, begin: Callable[[], Any]) -> tuple[float, float]:
        """Return the binds per second from the first to the last, and the seconds until the first."""
        _, version = await self.api.everything("/api/v1/pods")
        seen: dict[str, float] = {}
        begun = time.perf_counter()
        running = asyncio.ensure_future(begin())
        while len(seen) < pods:
            try:
                async for changes in self.api.watch("/api/v1/pods", version):
                    now = time.perf_counter()
                    for change in changes:
                        version = change["object"]["metadata"]["resourceVersion"]
                        if change["type"] == "MODIFIED" and change["object"]["spec"].get("nodeName"):
                            seen.setdefault(change["object"]["metadata"]["uid"], now)
                    if len(seen) >= pods:
                        break
            except Unavailable as error:
                print(f"  the watch was interrupted: {error}")
            if time.perf_counter() > begun + LONGEST_S:
                raise SystemExit(f"only {len(seen):,} of {pods:,} pods were bound within {LONGEST_S:.0f} s")
        await running
        first, last = min(seen.values()), max(seen.values())
        return pods / (last - first), first - begun


async def raw(field: Field, alone: int, gangs: int, nodes: int) -> float:
    """Measure binds by the client alone, in a separate process, to predetermined nodes."""
    values = pods_for("nobody", alone, gangs)
    print(f"  pods made: {await field.make(PODS, values):,.0f}/s")

    process: list[subprocess.Popen[bytes]] = []

    async def begin() -> None:
        command = [sys.executable, __file__, "--nodes", str(nodes), "--bind", str(field.bed.kubeconfig("admin-token"))]
        process.append(subprocess.Popen(command))

    rate, _ = await field.bound(len(values), begin)
    process[0].wait()
    await field.clear()
    return rate


async def bind_all(kubeconfig: Path, nodes: int) -> None:
    """Bind all pods to one node after the other; run in the process of raw binds."""
    api = Api(connect(None, kubeconfig), connections=AT_ONCE)
    pods, _ = await api.everything("/api/v1/pods")

    async def bind(number: int, name: str) -> None:
        notes = {"rota.dev/devices": str(number % PER_NODE)}
        target = {"apiVersion": "v1", "kind": "Node", "name": f"n{number % nodes}"}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "annotations": notes}}
        await api.post(f"/api/v1/namespaces/default/pods/{name}/binding", {**body, "target": target})

    await in_parallel([partial(bind, number, value["metadata"]["name"]) for number, value in enumerate(pods)])
    await api.close()


async def by_rota(field: Field, alone: int, gangs: int, folder: Path) -> tuple[float, Json]:
    values = pods_for("rota", alone, gangs)
    await field.make(PODS, values)
    config = folder / "settings.yaml"
    config.write_text("policy: fifo\nplacement: any\n")
    about: Json = {}
    process: list[subprocess.Popen[bytes]] = []

    async def begin() -> None:
        process.append(start_rota(field.bed, config, folder))

    rate, about["first_bind_s"] = await field.bound(len(values), begin)
    about["pass_ms"] = pass_ms((folder / "rota.log").read_text())
    usage = Path(f"/proc/{process[0].pid}/status").read_text()
    about["memory_mib"] = int(usage.split("VmHWM:")[1].split()[0]) >> 10
    about["cpu_s"] = cpu_s(process[0].pid)
    stop(process[0])
    about["restart_s"] = start_s(field.bed, config, folder)
    await field.clear()
    return rate, about


async def starts(field: Field, alone: int, folder: Path) -> None:
    """Measure the start with running pods: with the records of their binds, and without, as another replica would."""
    folder.mkdir()
    values = pods_for("rota", alone, 0)
    await field.make(PODS, values)
    config = folder / "settings.yaml"
    config.write_text("policy: fifo\nplacement: any\n")
    process: list[subprocess.Popen[bytes]] = []

    async def begin() -> None:
        process.append(start_rota(field.bed, config, folder))

    await field.bound(alone, begin)
    stop(process[0])
    running = {"status": {"phase": "Running"}}
    paths = [f"{PODS}/{value['metadata']['name']}/status" for value in values]
    await in_parallel([partial(field.api.patch, path, running) for path in paths])
    for what, data in (("with its records", "data"), ("without records", "other")):
        took = start_s(field.bed, config, folder, data)
        print(f"rota starts {what:<16} {took:6.1f} s  (goal: under 10; load {os.getloadavg()[0]:.1f})", flush=True)
    await field.clear()


async def waiting(field: Field, nodes: int, pods: int, folder: Path) -> None:
    """Measure Rota while pods wait on full nodes: when they have been read, with some changes, and idle."""
    folder.mkdir()
    others = [pod(f"other-{number}", PER_NODE, schedulerName="other", nodeName=f"n{number}") for number in range(nodes)]
    await field.make(PODS, others)
    await field.make(PODS, pods_for("rota", pods, 0))
    config = folder / "settings.yaml"
    config.write_text("policy: priority\n")
    log = folder / "rota.log"
    _, version = await field.api.everything(PODS)
    told = asyncio.ensure_future(_until_told(field, pods, version))
    begun = time.perf_counter()
    process = start_rota(field.bed, config, folder)
    while not log.exists() or "rota schedules" not in log.read_text():
        if process.poll() is not None:
            raise SystemExit(log.read_text()[-2000:])
        await asyncio.sleep(0.1)
    print(f"{nodes:,} nodes, {pods:,} waiting pods: schedules after {time.perf_counter() - begun:.1f} s", flush=True)
    first_s, last_s = await told
    rate = pods / (last_s - first_s)
    print(
        f"every pod has its reason after {last_s - begun:.0f} s, {rate:,.0f}/s from the first to the last", flush=True
    )
    await asyncio.sleep(SETTLE_S)
    idle = [await _idle(process.pid) for _ in range(IDLE_TIMES)]
    memory = int(Path(f"/proc/{process.pid}/status").read_text().split("VmHWM:")[1].split()[0]) >> 10
    print(f"{memory} MiB, {pass_ms(log.read_text()):.1f} ms a step", end=", ")
    print(f"forecasts {100 * max(below for _, below in idle):.1f}% of a core")
    each = ", ".join(f"{100 * alone:.2f}%" for alone, _ in idle)
    print(f"idle, minute by minute: {each} of a core (goal: below 2; load {os.getloadavg()[0]:.1f})", flush=True)
    stop(process)


async def _idle(pid: int) -> tuple[float, float]:
    """Return the part of a core that a process takes in a minute, and that those below it take."""
    alone, below, since = cpu_s(pid), tree_cpu_s(pid), time.perf_counter()
    await asyncio.sleep(IDLE_S)
    took = time.perf_counter() - since
    idle = (cpu_s(pid) - alone) / took
    return idle, (tree_cpu_s(pid) - below) / took - idle


async def _until_told(field: Field, pods: int, version: str) -> tuple[float, float]:
    """Return when the first and the last waiting pod got its reason; none may be bound: all devices are taken."""
    told: dict[str, float] = {}
    begun = time.perf_counter()
    while len(told) < pods:
        async for changes in field.api.watch(PODS, version, fieldSelector="spec.schedulerName=rota"):
            for change in changes:
                meta, spec = change["object"]["metadata"], change["object"].get("spec") or {}
                version = meta["resourceVersion"]
                if spec.get("nodeName"):
                    raise SystemExit(f"{meta['name']} is bound to a node without free devices")
                if _has_reason(change["object"]):
                    told.setdefault(meta["uid"], time.perf_counter())
            if len(told) >= pods:
                break
        if time.perf_counter() > begun + LONGEST_S:
            raise SystemExit(f"{pods - len(told):,} of {pods:,} pods have no reason within {LONGEST_S:.0f} s")
    return min(told.values()), max(told.values())


def _has_reason(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)


async def by_stock(field: Field, alone: int, gangs: int, folder: Path) -> float:
    """Measure the scheduler of Kubernetes without a limit on its request rate."""
    values = pods_for("default-scheduler", alone, gangs)
    await field.make(PODS, values)
    config = folder / "scheduler.yaml"
    is_old = field.bed.minor < 25
    address = f"127.0.0.1:{free_port()}"
    config.write_text(
        yaml.safe_dump(
            {
                "apiVersion": f"kubescheduler.config.k8s.io/{'v1beta1' if is_old else 'v1'}",
                "kind": "KubeSchedulerConfiguration",
                "leaderElection": {"leaderElect": False},
                **({"healthzBindAddress": address, "metricsBindAddress": address} if is_old else {}),
                "clientConnection": {
                    "kubeconfig": str(field.bed.kubeconfig("admin-token")),
                    "qps": 10000,
                    "burst": 10000,
                    "contentType": "application/vnd.kubernetes.protobuf",
                },
            }
        )
    )
    program = binaries("kube-scheduler")["kube-scheduler"]
    process: list[subprocess.Popen[bytes]] = []

    async def begin() -> None:
        with (folder / "scheduler.log").open("ab") as log:
            options = [f"--config={config}", f"--secure-port={free_port()}", "--bind-address=127.0.0.1"]
            process.append(subprocess.Popen([str(program), *options], stdout=log, stderr=log))

    try:
        rate, _ = await field.bound(len(values), begin)
    finally:
        stop(process[0])
    await field.clear()
    return rate


async def main(nodes: int, alone: int, gangs: int, only: str | None) -> None:
    with tempfile.TemporaryDirectory(prefix="rota-bench-") as name:
        folder = Path(name)
        bed = Bed(folder / "bed").start()
        try:
            for value in manifests(InstallOptions(release=(1, 20))):
                if value["kind"] == "CustomResourceDefinition":
                    bed.admin.make(value)
            field = Field(bed)
            await field.make("/api/v1/nodes", [node_object(f"n{number}", PER_NODE) for number in range(nodes)])
            if only in (None, "rates"):
                await rates(field, nodes, alone, gangs, folder)
            if only in (None, "start"):
                print(f"{nodes:,} nodes, {alone:,} running pods")
                await starts(field, alone, folder / "start")
            if only == "waiting":
                await waiting(field, nodes, alone, folder / "waiting")
            await field.api.close()
        finally:
            bed.stop()


async def rates(field: Field, nodes: int, alone: int, gangs: int, folder: Path) -> None:
    """Measure Rota and the stock scheduler, with raw binds before and after."""
    print(f"{nodes:,} nodes, {alone:,} one-pod jobs, {gangs:,} gangs of {GANG}")
    first = await raw(field, alone, gangs, nodes)
    print(f"raw binds before    {first:8,.0f}/s")
    rota, about = await by_rota(field, alone, gangs, folder)
    print(
        f"rota                {rota:8,.0f}/s  first bind after {about['first_bind_s']:.1f} s, "
        f"{about['pass_ms']:.1f} ms a pass, {about['memory_mib']} MiB, {about['cpu_s']:.1f} s CPU"
    )
    pods = alone + gangs * GANG
    print(f"rota, started again with {pods:,} pods bound: schedules after {about['restart_s']:.1f} s")
    stock = await by_stock(field, alone, gangs, folder)
    print(f"kube-scheduler      {stock:8,.0f}/s")
    last = await raw(field, alone, gangs, nodes)
    print(f"raw binds after     {last:8,.0f}/s")
    print(f"rota / raw binds    {rota / ((first + last) / 2):8.2f}  (goal: at least 0.7)")
    print(f"rota / stock        {rota / stock:8.2f}  (goal: at least 1)", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="how fast Rota binds pods")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--gangs", type=int, default=500)
    parser.add_argument("--only", choices=["start", "rates", "waiting"], help="measure only this")
    parser.add_argument("--bind", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bind is not None:
        asyncio.run(bind_all(options.bind, options.nodes))
        sys.exit()
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        binaries("etcd", "kube-apiserver", *(("kube-scheduler",) if options.only in (None, "rates") else ()))
    except NoCluster as error:
        print(f"skipped: {error}")
    else:
        asyncio.run(main(options.nodes, options.pods, options.gangs, options.only))
