"""One real node: containerd and kubelet from Debian's packages, nothing installed, images made here. Needs root."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import yaml

from e2e.kubernetes.bed import CACHE, Bed, NoCluster, binary
from ports import free_port

Json = dict[str, Any]
RUNTIME = CACHE / "runtime"
PACKAGES = (
    "containerd",
    "runc",
    "containernetworking-plugins",
    "busybox-static",
    "libseccomp2",
    "conntrack",
    "iptables",
)
SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
)
"""What a kubelet sets; put back afterwards."""
IMAGE, PAUSE = "rota.test/busybox:1", "rota.test/pause:1"


def runtime() -> Path:
    """The folder in which containerd and its helpers lie, as if it were the root of a system."""
    root = RUNTIME / "root"
    if (root / "usr/bin/containerd").is_file():
        return root
    packages = RUNTIME / "packages"
    packages.mkdir(parents=True, exist_ok=True)
    fetched = subprocess.run(
        ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", *PACKAGES],
        cwd=packages,
        capture_output=True,
        text=True,
    )
    if fetched.returncode:
        raise NoCluster(f"containerd can't be had: {fetched.stderr.strip()[-200:]}")
    for package in packages.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(package), str(root)], check=True)
    return root


def image_archive(name: str, busybox: Path, command: list[str], path: Path) -> None:
    """An image of one layer, with a shell in it."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        content = busybox.read_bytes()
        info = tarfile.TarInfo("bin/busybox")
        info.size, info.mode = len(content), 0o755
        tar.addfile(info, io.BytesIO(content))
        for tool in ("sh", "sleep", "echo"):
            link = tarfile.TarInfo(f"bin/{tool}")
            link.type, link.linkname = tarfile.SYMTYPE, "/bin/busybox"
            tar.addfile(link)
    digest = hashlib.sha256(layer.getvalue()).hexdigest()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Cmd": command, "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(path, "w") as tar:
        for member, content in (("layer.tar", layer.getvalue()), ("config.json", config), ("manifest.json", manifest)):
            info = tarfile.TarInfo(member)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


class Kubelet:
    """A node of this machine, in a folder of its own."""

    def __init__(self, bed: Bed, name: str = "localhost") -> None:
        program = binary("kubelet")
        if program is None:
            raise NoCluster("there is no kubelet; tests/e2e/kubernetes/build can make one")
        if os.geteuid() != 0:
            raise NoCluster("a kubelet needs root")
        self._program = program
        self._bed = bed
        self.name = name
        self._root = runtime()
        self._folder = Path(tempfile.mkdtemp(prefix="rota-kubelet-"))
        self._socket = self._folder / "containerd.sock"
        self._running: list[subprocess.Popen[bytes]] = []
        self._kept = {name: _sysctl(name).read_text() for name in SYSCTLS if _sysctl(name).exists()}
        places = ("usr/bin", "usr/sbin", "sbin", "bin")
        self._env = {
            **os.environ,
            "PATH": ":".join(str(self._root / place) for place in places) + ":" + os.environ["PATH"],
            "LD_LIBRARY_PATH": str(self._root / "usr/lib/x86_64-linux-gnu"),
        }

    def start(self) -> Kubelet:
        """Start the runtime and the kubelet, and wait until the node is Ready."""
        self._start_containerd()
        for name, command in ((IMAGE, ["/bin/sh"]), (PAUSE, ["/bin/sleep", "1000000"])):
            archive = self._folder / "image.tar"
            image_archive(name, self._root / "bin/busybox", command, archive)
            self._ctr("-n", "k8s.io", "image", "import", str(archive))
        self._start_kubelet()
        path = f"/api/v1/nodes/{self.name}"
        self._eventually(lambda: self._is_ready(), 60)
        devices = {"nvidia.com/gpu": "4"}
        self._bed.admin.patch(f"{path}/status", {"status": {"capacity": devices, "allocatable": devices}})
        self._bed.admin.patch(path, {"spec": {"taints": None}})
        return self

    def stop(self) -> None:
        """Stop everything, unmount what is left, and put the machine's settings back."""
        for process in reversed(self._running):
            process.terminate()
        for process in reversed(self._running):
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._end_shims()
        for line in reversed(Path("/proc/mounts").read_text().splitlines()):
            target = line.split()[1]
            if target.startswith(str(self._folder)):
                subprocess.run(["umount", "-l", target], capture_output=True)
        for name, value in self._kept.items():
            _sysctl(name).write_text(value)
        shutil.rmtree(self._folder, ignore_errors=True)

    def said(self) -> str:
        """The end of what the programs logged."""
        logs = sorted(self._folder.glob("*.log"))
        return "\n".join(f"{path.name}: {path.read_text()[-2500:]}" for path in logs)

    def _start_containerd(self) -> None:
        (self._folder / "cni").mkdir()
        network = {"cniVersion": "0.3.1", "name": "none", "plugins": [{"type": "loopback"}]}
        (self._folder / "cni" / "10.conflist").write_text(json.dumps(network))
        config = self._folder / "containerd.toml"
        config.write_text(
            f"""
version = 2
root = "{self._folder}/root"
state = "{self._folder}/state"
[grpc]
address = "{self._socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
restrict_oom_score_adj = true
disable_apparmor = true
stream_server_address = "127.0.0.1"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{self._root}/usr/lib/cni"
conf_dir = "{self._folder}/cni"
"""
        )
        self._run("containerd", str(self._root / "usr/bin/containerd"), "--config", str(config))
        self._eventually(lambda: self._ctr("version", check=False) == 0, 30)

    def _start_kubelet(self) -> None:
        config = self._folder / "kubelet.yaml"
        config.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "kubelet.config.k8s.io/v1beta1",
                    "kind": "KubeletConfiguration",
                    "address": "127.0.0.1",
                    "port": free_port(),
                    "healthzPort": 0,
                    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
                    "authorization": {"mode": "AlwaysAllow"},
                    "cgroupDriver": "cgroupfs",
                    "cgroupsPerQOS": False,
                    "enforceNodeAllocatable": [],
                    "failSwapOn": False,
                    "makeIPTablesUtilChains": False,
                    "nodeStatusUpdateFrequency": "2s",
                    "evictionHard": {"memory.available": "1Mi"},
                    "imageGCHighThresholdPercent": 100,
                    "resolvConf": "/etc/resolv.conf",
                }
            )
        )
        self._run(
            "kubelet",
            str(self._program),
            f"--config={config}",
            f"--kubeconfig={self._bed.kubeconfig('admin-token')}",
            f"--root-dir={self._folder}/kubelet",
            f"--cert-dir={self._folder}/certs",
            f"--hostname-override={self.name}",
            "--container-runtime=remote",
            f"--container-runtime-endpoint=unix://{self._socket}",
        )

    def _is_ready(self) -> bool:
        assert all(process.poll() is None for process in self._running), self.said()
        for node in self._bed.admin.items("/api/v1/nodes"):
            if node["metadata"]["name"] == self.name:
                conditions = node["status"].get("conditions", ())
                return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
        return False

    def _end_shims(self) -> None:
        """End the helpers that hold containers, with the containers; both outlive containerd on purpose."""
        mark = str(self._folder)
        ending = set()
        parents = {}
        for each in psutil.process_iter(["pid", "ppid", "cmdline"]):
            parents[each.pid] = each.info["ppid"]
            line = " ".join(each.info["cmdline"] or ())
            if "containerd-shim" in line and mark in line:
                ending.add(each.pid)
        while more := {pid for pid, parent in parents.items() if parent in ending} - ending:
            ending |= more
        for pid in ending:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)

    def _run(self, name: str, *command: str) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running.append(subprocess.Popen(command, stdout=log, stderr=log, env=self._env))

    def _ctr(self, *args: str, check: bool = True) -> int:
        command = [str(self._root / "usr/bin/ctr"), "--address", str(self._socket), *args]
        return subprocess.run(command, env=self._env, capture_output=True, check=check).returncode

    def _eventually(self, what: Any, within_s: float) -> None:
        deadline = time.monotonic() + within_s
        while not what():
            if time.monotonic() > deadline:
                raise NoCluster(f"no real node can be started here: {self.said()}")
            time.sleep(0.2)


def _sysctl(name: str) -> Path:
    return Path("/proc/sys") / name
