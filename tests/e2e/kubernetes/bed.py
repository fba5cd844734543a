"""A real control plane for tests: etcd, kube-apiserver and, where asked for, kube-controller-manager, on loopback.

Binaries are looked for in KUBEBUILDER_ASSETS, on the PATH and in ~/.cache/rota/kubernetes. Only then, and only where
ROTA_BUILD_KUBERNETES is set, they are built from Debian's packages, which takes minutes, once. `.ci/run` builds them
beside the tests that come before; if they are not there in time (ROTA_WAIT_KUBERNETES, in seconds), what needs them is
skipped, and runs the next time.
KUBECONFIG is not heeded: these tests make nodes and evict pods, and it may name a cluster that people live on.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import yaml

from ports import free_port

Json = dict[str, Any]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rota" / "kubernetes"
BUILD = Path(__file__).parent / "build"
NEEDED = ("etcd", "kube-apiserver")
READY_S = float(os.environ.get("ROTA_READY_S", "120"))
"""How long an API server may take to start; longer on a machine with much else to do."""
BUSY_S = 120.0
"""How long a server may take until it knows a new type, or to list and delete on a machine with much else to do."""
USERS = 96
"""Identities without any right, `user-0` and so on, for tests to give rights to."""


class NoCluster(Exception):
    """There are no binaries and none can be built here."""


def binary(name: str) -> Path | None:
    """Where a program of the control plane is, if it is anywhere."""
    for folder in (os.environ.get("KUBEBUILDER_ASSETS"), str(CACHE / "bin")):
        if folder and (Path(folder) / name).is_file():
            return Path(folder) / name
    found = shutil.which(name)
    return None if found is None else Path(found)


def binaries(*names: str) -> dict[str, Path]:
    """The programs by name, built first if that is needed and possible."""
    missing = [name for name in names if binary(name) is None]
    if missing and "ROTA_WAIT_KUBERNETES" in os.environ:
        _wait_for(missing, float(os.environ["ROTA_WAIT_KUBERNETES"]))
        missing = []
    if missing and not os.environ.get("ROTA_BUILD_KUBERNETES"):
        raise NoCluster(f"there is no {', '.join(missing)}; {BUILD} {CACHE} builds what is missing, in minutes")
    if missing:
        wanted = [name for name in missing if name not in ("etcd", "kubectl")]
        built = subprocess.run([str(BUILD), str(CACHE), *wanted], capture_output=True, text=True)
        if built.returncode:
            raise NoCluster(f"{', '.join(missing)} can't be built: {_last_words(built.stderr)}")
    found = {name: binary(name) for name in names}
    return {name: path for name, path in found.items() if path is not None}


def _wait_for(names: list[str], within_s: float) -> None:
    """Wait for what another process builds; how long is counted from the first that waited."""
    begun = _waiting_since.setdefault("first", time.monotonic())
    while True:
        is_being_built = _is_being_built()
        if all(binary(name) is not None for name in names):
            return
        if not is_being_built:
            log = CACHE / "build.log"
            words = _last_words(log.read_text()) if log.exists() else "nobody builds it"
            raise NoCluster(f"{', '.join(names)} can't be built: {words}")
        if time.monotonic() > begun + within_s:
            raise NoCluster(f"{', '.join(names)} is still being built; the tests that need it run the next time")
        time.sleep(1.0)


def _is_being_built() -> bool:
    """Whether somebody has the lock that `build` takes."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _last_words(said: str) -> str:
    return (said.strip().splitlines() or ["nothing was said"])[-1]


_waiting_since: dict[str, float] = {}


class Kube:
    """The API server as a test speaks to it: plain requests, plain values."""

    def __init__(self, server: str, token: str, authority: Path) -> None:
        import ssl

        self.server, self.token, self.authority = server, token, authority
        self._http = httpx.Client(
            base_url=server,
            headers={"Authorization": f"Bearer {token}"},
            verify=ssl.create_default_context(cafile=str(authority)),
            timeout=60,
        )

    def ask(self, method: str, path: str, body: object = None, kind: str = "application/json") -> Json:
        content = None if body is None else json.dumps(body)
        until_s = time.monotonic() + BUSY_S
        while True:
            answer = self._http.request(method, path, content=content, headers={"Content-Type": kind})
            is_early = answer.status_code == 429 and "initializing" in answer.text
            is_slow = answer.status_code == 504 and method in ("GET", "DELETE")  # asked twice they do the same
            if not (is_early or is_slow) or time.monotonic() > until_s:
                break
            time.sleep(0.2)
        if answer.status_code >= 400:
            raise KubeError(answer.status_code, answer.text)
        value: Json = answer.json()
        return value

    def is_ready(self) -> bool:
        """Whether the server knows all that it has to, rights among it."""
        return self._http.get("/readyz").status_code == 200

    def get(self, path: str) -> Json:
        return self.ask("GET", path)

    def items(self, path: str) -> list[Json]:
        found: list[Json] = self.get(path)["items"]
        return found

    def post(self, path: str, body: object) -> Json:
        return self.ask("POST", path, body)

    def patch(self, path: str, body: object, kind: str = "application/merge-patch+json") -> Json:
        return self.ask("PATCH", path, body, kind)

    def delete(self, path: str, body: object = None) -> Json:
        return self.ask("DELETE", path, body)

    def apply(self, text: str) -> list[Json]:
        """Make what a file of YAML documents describes, as `kubectl apply` would; what is there already is changed."""
        return [self.make(value) for value in yaml.safe_load_all(text) if value]

    def make(self, value: Json) -> Json:
        path = self.path_of(value)
        try:
            return self.post(path, value)
        except KubeError as error:
            if error.status != 409:
                raise
            return self.patch(f"{path}/{value['metadata']['name']}", value)

    def path_of(self, value: Json) -> str:
        version, kind = value["apiVersion"], value["kind"]
        ending = {"y": kind.lower()[:-1] + "ies", "s": kind.lower() + "es"}
        plural = ending.get(kind[-1], kind.lower() + "s")
        where = "" if kind in _CLUSTERED else f"/namespaces/{value['metadata'].get('namespace', 'default')}"
        return f"/{'api' if version == 'v1' else 'apis'}/{version}{where}/{plural}"

    def close(self) -> None:
        self._http.close()


_CLUSTERED = frozenset(
    {
        *("Namespace", "Node", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "PriorityClass"),
        *("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "Topology", "SchedulingPolicy"),
        *("CSINode", "DeviceClass", "PersistentVolume", "ResourceSlice", "StorageClass"),
    }
)


class KubeError(Exception):
    """What the API server refused."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


ACCOUNT = "system:serviceaccount:rota-system:rota"
_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [ACCOUNT]}, {"level": "None"}],
}


class Bed:
    """One control plane in a folder of its own."""

    def __init__(self, folder: Path, *, controllers: bool = False, only: str = "") -> None:
        names = (*NEEDED, "kube-controller-manager") if controllers else NEEDED
        self._programs = binaries(*names)
        self._folder = folder
        self._controllers = controllers
        self._only = only
        """The controllers that run; all but a few, if it is empty."""
        self._ports = {name: free_port() for name in ("etcd", "peer", "api", "manager")}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.server = f"https://127.0.0.1:{self._ports['api']}"
        self.admin: Kube

    def start(self) -> Bed:
        """Start everything and wait until it answers."""
        folder = self._folder
        (folder / "certs").mkdir(parents=True, exist_ok=True)
        subprocess.run(["openssl", "genrsa", "-out", str(folder / "sa.key"), "2048"], check=True, capture_output=True)
        (folder / "tokens.csv").write_text(
            'admin-token,admin,admin,"system:masters"\n'
            f'rota-token,{ACCOUNT},rota,"system:serviceaccounts"\n'
            + "".join(f"user-{number}-token,user-{number},user-{number}\n" for number in range(USERS))
        )
        (folder / "audit.yaml").write_text(json.dumps(_AUDIT))
        self.start_etcd()
        self.start_api()
        if self._controllers:
            self._start_controllers()
        return self

    def start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{self._ports[name]}" for name in ("etcd", "peer"))
        self._run(
            "etcd",
            "--name=t",
            f"--data-dir={self._folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=t={peer}",
            "--unsafe-no-fsync",
        )

    def start_api(self) -> None:
        """Start the API server, and wait until it is ready."""
        folder = self._folder
        self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._ports['etcd']}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._ports['api']}",
            f"--cert-dir={folder / 'certs'}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=RBAC,Node",
            "--anonymous-auth=false",
            f"--audit-policy-file={folder / 'audit.yaml'}",
            f"--audit-log-path={folder / 'audit.log'}",
            "--service-cluster-ip-range=10.96.0.0/16",
            f"--service-account-key-file={folder / 'sa.key'}",
            f"--service-account-signing-key-file={folder / 'sa.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            "--endpoint-reconciler-type=none",
            "--kubelet-preferred-address-types=Hostname",
            "--max-requests-inflight=3000",
            "--max-mutating-requests-inflight=1000",
        )
        authority = folder / "certs" / "apiserver.crt"
        deadline = time.monotonic() + READY_S
        while True:
            try:
                if not hasattr(self, "admin"):
                    self.admin = Kube(self.server, "admin-token", authority)
                if self.admin.is_ready():
                    return
            except (httpx.HTTPError, OSError):
                pass
            if time.monotonic() > deadline:
                raise AssertionError((folder / "kube-apiserver.log").read_text()[-3000:])
            time.sleep(0.1)

    def audited(self) -> list[Json]:
        """What Rota has asked of the API server so far, request by request."""
        log = self._folder / "audit.log"
        whole, _, _ = (log.read_text() if log.exists() else "").rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def stop_api(self) -> None:
        """As if the API server's machine went down."""
        self._stop("kube-apiserver")

    def pause_api(self) -> None:
        """Let the API server take requests and say nothing."""
        self._running["kube-apiserver"].send_signal(signal.SIGSTOP)

    def resume_api(self) -> None:
        self._running["kube-apiserver"].send_signal(signal.SIGCONT)

    def _start_controllers(self) -> None:
        self._run(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig('admin-token')}",
            "--use-service-account-credentials=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._ports['manager']}",
            f"--cert-dir={self._folder / 'certs'}",
            f"--service-account-private-key-file={self._folder / 'sa.key'}",
            "--leader-elect=false",
            "--node-monitor-grace-period=8s",
            "--node-monitor-period=1s",
            f"--controllers={self._known(self._only) or '*,-ttl,-bootstrapsigner,-tokencleaner'}",
            *(("--port=0", "--pod-eviction-timeout=5s") if self.minor < 24 else ()),
        )

    def _known(self, controllers: str) -> str:
        """Leave out controllers that this release does not have yet."""
        return controllers if self.minor >= 34 else controllers.replace(",resourceclaim-controller", "")

    @property
    def minor(self) -> int:
        """The minor number of the release, as 20 in 1.20.2."""
        said = subprocess.run(
            [self._programs["kube-apiserver"], "--version"], capture_output=True, text=True, check=True
        )
        return int(said.stdout.split(".")[1])

    def kubeconfig(self, token: str = "rota-token") -> Path:
        """A kubeconfig of an identity; Rota's own by default."""
        path = self._folder / f"{token}.kubeconfig"
        if path.exists():
            return path
        cluster = {"server": self.server, "certificate-authority": str(self._folder / "certs" / "apiserver.crt")}
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "test",
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
                    "clusters": [{"name": "test", "cluster": cluster}],
                    "users": [{"name": "test", "user": {"token": token}}],
                }
            )
        )
        return path

    def _run(self, name: str, *args: str) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen([str(self._programs[name]), *args], stdout=log, stderr=log)

    def _stop(self, name: str) -> None:
        process = self._running.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()

    def stop(self) -> None:
        """Stop everything and leave nothing behind."""
        if hasattr(self, "admin"):
            self.admin.close()
        for name in reversed(list(self._running)):
            self._stop(name)
        shutil.rmtree(self._folder, ignore_errors=True)


def made_bed(*, controllers: bool = False) -> Iterator[Bed]:
    """A control plane for the length of a fixture."""
    with tempfile.TemporaryDirectory(prefix="rota-k8s-", ignore_cleanup_errors=True) as folder:
        bed = Bed(Path(folder), controllers=controllers)
        try:
            yield bed.start()
        finally:
            bed.stop()
