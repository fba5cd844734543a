"""What runtimes are told, by tables: of Podman what real runs do not reach here, of Docker and Apptainer all of it."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rota.core.errors import RotaError
from rota.drivers.local.containers import podman, settings
from rota.drivers.local.containers.apptainer import apptainer_command
from rota.drivers.local.containers.container_order import visible_gpus
from rota.drivers.local.containers.docker import docker_command
from rota.drivers.local.containers.gpu_names import GivenGpu, cdi_names
from rota.drivers.local.containers.job_refusal import refuse_container
from rota.drivers.local.containers.plan import ContainerPlan, ContainerUser
from rota.drivers.local.containers.podman import PodmanStore, podman_command
from rota.drivers.local.containers.seccomp_profile import PROFILES, write_profile
from rota.drivers.local.containers.settings import Containers, Pull, RuntimeName, find_containers
from rota.drivers.local.containers.short_folder import make_short, remove_short
from rota.drivers.local.containers.volumes import MountedVolume, image_name, volumes_of
from rota.drivers.local.failure import FailureClass, classify
from rota.drivers.local.task_runner.containers import become
from rota.drivers.local.task_runner.containers.container_processes import was_not_started
from rota.files.job import job_file
from rota.files.up_file import ContainersPart

USER = ContainerUser(uid=1012, gid=1012, groups=(20, 1012))
GPUS = (GivenGpu(index=3, uuid="GPU-a"), GivenGpu(index=5, uuid="GPU-b"))


def containers(runtime: RuntimeName, **changes: object) -> Containers:
    return replace(Containers(runtime=runtime, program=f"/usr/bin/{runtime.value}", why=""), **changes)  # type: ignore[arg-type]


def plan(runtime: RuntimeName, folder: Path, **changes: object) -> ContainerPlan:
    usual = ContainerPlan(
        containers=containers(runtime),
        name="rota-7-1-0-ab",
        image="lab/train:2",
        workdir="/work",
        folder=folder,
        user=USER,
        manager_uid=0,
        interactive=False,
        tty=False,
        gpus=(),
        limits=(("nofile", 1024, 4096),),
        cpu_milli=1500,
        memory_bytes=1 << 30,
        processes=64,
        refuses_calls=False,
        implied=((MountedVolume(source="/w", target="/work", read_only=False), "user-if-there"),),
        volumes=(),
    )
    return replace(usual, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name",
    [
        "busybox",
        "pytorch/pytorch:2.5.1-cuda12.4",
        "localhost:5000/a/b:1",
        "Registry.example.org/team/x@sha256:" + "0" * 64,
        "/images/train.sif",
    ],
)
def test_names_of_images_are_taken(name: str) -> None:
    assert image_name(name) == name


NO_IMAGES = ("", "-x", "--privileged", "a b", "a\n", "docker://x", "oci:/x", "dir:x", "sif:x", "x:", "a//b")


@pytest.mark.parametrize("name", [*NO_IMAGES, "../x.sif", "x.SIF:", "/a/../x.sif", "a" * 600, "é"])
def test_what_is_no_image_is_refused(name: str) -> None:
    with pytest.raises(RotaError, match=r"job: image is .*; write it like"):
        image_name(name)


def test_volumes_are_read_as_they_are_written() -> None:
    assert volumes_of(["/a:/b", "/a/c:/d:ro", "/e f:/g:rw"]) == (
        MountedVolume(source="/a", target="/b", read_only=False),
        MountedVolume(source="/a/c", target="/d", read_only=True),
        MountedVolume(source="/e f", target="/g", read_only=False),
    )


NO_VOLUMES = ("/a", "/a:", ":/a", "a:/b", "/a:b", "/a:/b:x", "/a:/b:ro:z", "/a:/", "/:/a", "/a/../b:/c", "/a,x:/c")


@pytest.mark.parametrize("text", [*NO_VOLUMES, "/a:/dev"])
def test_what_is_no_volume_is_refused(text: str) -> None:
    with pytest.raises(RotaError, match=r"job: volumes\[0\] is "):
        volumes_of([text])


def test_gpus_are_handed_over_by_the_names_of_their_specification(tmp_path: Path) -> None:
    (tmp_path / "nvidia.yaml").write_text("kind: nvidia.com/gpu\ndevices: [{name: GPU-a}, {name: '5'}, {name: all}]\n")
    (tmp_path / "other.json").write_text('{"kind": "example.org/net", "devices": [{"name": "GPU-c"}]}')
    (tmp_path / "broken.yaml").write_text("kind: [")

    assert cdi_names(GPUS, (tmp_path / "none", tmp_path)) == ("nvidia.com/gpu=GPU-a", "nvidia.com/gpu=5")
    with pytest.raises(RotaError, match=r"GPU GPU-c is in no CDI specification of .*; run `nvidia-ctk cdi generate"):
        cdi_names([GivenGpu(index=0, uuid="GPU-c")], (tmp_path,))


@pytest.mark.parametrize(
    ("runtime", "gpus", "seen"),
    [
        (RuntimeName.PODMAN, GPUS, {"CUDA_VISIBLE_DEVICES": "0,1", "NVIDIA_VISIBLE_DEVICES": "GPU-a,GPU-b"}),
        (RuntimeName.DOCKER, (), {"NVIDIA_VISIBLE_DEVICES": "void"}),
        (
            RuntimeName.PODMAN,
            (GivenGpu(index=None, uuid="MIG-1"),),
            {"CUDA_VISIBLE_DEVICES": "MIG-1", "NVIDIA_VISIBLE_DEVICES": "MIG-1"},
        ),
        (RuntimeName.APPTAINER, GPUS, {}),
    ],
)
def test_program_counts_the_gpus_of_its_container(
    runtime: RuntimeName, gpus: Sequence[GivenGpu], seen: dict[str, str]
) -> None:
    assert visible_gpus(gpus, containers(runtime)) == seen


def test_podman_is_told_what_a_task_may_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = tmp_path / "own", tmp_path / "shared"
    for folder, driver, names in ((store, "vfs", []), (other, "overlay", ["docker.io/lab/train:2"])):
        (folder / f"{driver}-images").mkdir(parents=True)
        (folder / f"{driver}-images" / "images.json").write_text(json.dumps([{"names": names}]))
    monkeypatch.setattr(
        podman, "own_store", lambda program: PodmanStore(folder=store, driver="vfs", options=("vfs.x=1",))
    )
    asked = plan(
        RuntimeName.PODMAN,
        tmp_path,
        containers=containers(RuntimeName.PODMAN, images=(other,)),
        gpus=("nvidia.com/gpu=GPU-a",),
    )

    command = podman_command(asked)
    rootless = podman_command(replace(asked, user=None, manager_uid=1000))

    words = list(command.run)
    assert words[words.index("--storage-driver") + 1] == "overlay"  # of the store that has the image
    assert words[words.index("--storage-opt") + 1] == f"overlay.imagestore={other}"
    assert {"--device=nvidia.com/gpu=GPU-a", "--user=1012:1012", "--group-add=20", "--pull=never"} <= {*words}
    assert {
        "--cgroups=disabled",
        "--cap-drop=all",
        "--security-opt=no-new-privileges",
        "--ulimit=nofile=1024:4096",
    } <= {*words}
    assert not [word for word in words if word.startswith(("--privileged", "--volume"))]
    assert command.env["HOME"] == str(tmp_path / "home")
    assert (command.binds, rootless.binds) == (True, False)
    assert {"--user=0:0", "--group-add=keep-groups"} <= {*rootless.run}
    for made in (command, rootless):
        assert len(made.run[made.run.index("--runroot") + 1]) <= 50
    remove_short(tmp_path)


def test_docker_is_told_what_a_task_may_have(tmp_path: Path) -> None:
    command = docker_command(plan(RuntimeName.DOCKER, tmp_path, gpus=("GPU-a", "GPU-b"), interactive=True, tty=True))

    words = list(command.run)
    assert words[words.index("--gpus") + 1] == '"device=GPU-a,GPU-b"'
    assert {"--memory=1073741824", "--cpus=1.5", "--pids-limit=64", "--cap-drop=ALL", "--user=1012:1012"} <= {*words}
    assert {"--security-opt=no-new-privileges", "--tty", "--interactive", "--pull=never"} <= {*words}
    assert command.remove[-3:] == ("rm", "--force", "rota-7-1-0-ab")
    assert not command.as_user


def test_apptainer_runs_files_as_the_user(tmp_path: Path) -> None:
    (tmp_path / "lab_train_2.sif").touch()
    here = containers(RuntimeName.APPTAINER, images=(tmp_path,))
    asked = plan(RuntimeName.APPTAINER, tmp_path, containers=here, gpus=("GPU-a",))

    command = apptainer_command(asked)

    assert (command.image, command.as_user, command.env_by_prefix) == (
        str(tmp_path / "lab_train_2.sif"),
        True,
        "APPTAINERENV_",
    )
    assert {"--nv", "--contain", "--cleanenv", "--userns"} <= {*command.run}
    with pytest.raises(RotaError, match=r"there is no image lab_other_1\.sif in the folders of containers\.images"):
        apptainer_command(replace(asked, image="lab/other:1"))
    fetched = replace(here, pull=Pull.MISSING)
    assert apptainer_command(replace(asked, image="lab/other:1", containers=fetched)).image == "docker://lab/other:1"


def test_own_volumes_replace_what_is_implied_at_their_place(tmp_path: Path) -> None:
    own = MountedVolume(source="/mine", target="/work", read_only=True)

    assert plan(RuntimeName.PODMAN, tmp_path).mounts() == [["/w", "/work", False, "user-if-there"]]
    assert plan(RuntimeName.PODMAN, tmp_path, volumes=(own,)).mounts() == [["/mine", "/work", True, "user"]]


@pytest.mark.skipif(not PROFILES[0].is_file(), reason=f"there is no {PROFILES[0]}")
def test_profile_refuses_what_confined_tasks_are_refused(tmp_path: Path) -> None:
    profile = json.loads(write_profile(tmp_path).read_text())

    allowed = {name for rule in profile["syscalls"] if rule["action"] == "SCMP_ACT_ALLOW" for name in rule["names"]}
    assert not {"mount", "unshare", "ptrace", "keyctl", "bpf", "setns"} & allowed
    assert {"read", "execve", "clone", "socket"} <= allowed


def test_short_folder_is_the_users_own_and_removed_with_its_container(tmp_path: Path) -> None:
    short = make_short(tmp_path, f"rota-test-{tmp_path}")
    (short / "state").touch()

    assert make_short(tmp_path, f"rota-test-{tmp_path}") == short
    assert short.stat().st_mode & 0o777 == 0o700
    remove_short(tmp_path)
    assert not short.exists()


def test_link_in_place_of_the_short_folder_removes_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "short").symlink_to(tmp_path / "other")

    remove_short(tmp_path)

    assert (tmp_path / "other").is_dir()


def test_runtime_is_found_or_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "SEARCHED", str(tmp_path))
    monkeypatch.setattr(settings, "DOCKER_SOCKET", str(tmp_path / "docker.sock"))

    def install(*names: str) -> None:
        for name in names:
            (tmp_path / name).touch(mode=0o755)

    nothing = find_containers(ContainersPart(), maps_accounts=False)
    install("docker", "podman", "apptainer")
    strangers = find_containers(ContainersPart(), maps_accounts=True)
    friends = find_containers(ContainersPart(), maps_accounts=False)
    install("crun")

    assert (nothing.runtime, nothing.why) == (
        None,
        "podman is not installed; docker is not installed; apptainer is not installed",
    )
    assert (strangers.runtime, strangers.why) == (
        None,
        f"podman is installed without crun; docker's daemon can't be reached at {tmp_path}/docker.sock",
    )
    assert friends.runtime is RuntimeName.APPTAINER
    assert find_containers(ContainersPart(), maps_accounts=True).runtime is RuntimeName.PODMAN
    assert find_containers(ContainersPart(runtime="off"), maps_accounts=True).runtime is None
    assert find_containers(ContainersPart(runtime="apptainer"), maps_accounts=True).runtime is RuntimeName.APPTAINER
    with pytest.raises(RotaError, match=r"containers: runtime is docker, and docker's daemon can't be reached"):
        find_containers(ContainersPart(runtime="docker"), maps_accounts=False)


@pytest.mark.parametrize(
    ("fields", "runtime", "allowed", "maps_accounts", "why"),
    [
        ({"volumes": ["/a:/b"]}, RuntimeName.PODMAN, None, False, "this job has no image"),
        ({"image": "x"}, None, None, False, "image can't be honoured here: no runtime was looked for"),
        (
            {"image": "x", "volumes": ["/a/b:/c"]},
            RuntimeName.DOCKER,
            None,
            True,
            "/a/b may not be mounted.*: none",
        ),
        (
            {"image": "x", "volumes": ["/a/b:/c"]},
            RuntimeName.DOCKER,
            ("/a",),
            True,
            "/a/b may not be mounted.*: /a",
        ),
        ({"image": "x", "volumes": ["/ab:/c"]}, RuntimeName.PODMAN, ("/a",), True, "/ab may not be mounted.*: /a"),
        ({"image": "x", "env": {"A": {"secret": "1\n2"}}}, RuntimeName.PODMAN, None, False, "env: A has a line break"),
    ],
)
def test_what_is_not_to_be_had_is_refused_by_name(
    fields: dict[str, object],
    runtime: RuntimeName | None,
    allowed: tuple[str, ...] | None,
    maps_accounts: bool,
    why: str,
) -> None:
    here = Containers() if runtime is None else containers(runtime, volumes=allowed)

    with pytest.raises(RotaError, match=why):
        refuse_container(job_file({"run": "true", **fields}), here, maps_accounts=maps_accounts)


@pytest.mark.parametrize(
    ("runtime", "allowed", "volume"),
    [
        (RuntimeName.PODMAN, None, "/a/b:/c"),
        (RuntimeName.PODMAN, ("/a",), "/a/b:/c"),
        (RuntimeName.DOCKER, ("/a",), "/a:/c"),
    ],
)
def test_what_may_be_mounted_is_taken(runtime: RuntimeName, allowed: tuple[str, ...] | None, volume: str) -> None:
    here = containers(runtime, volumes=allowed)

    refuse_container(job_file({"run": "true", "image": "x", "volumes": [volume]}), here, maps_accounts=True)


def test_link_out_of_what_may_be_mounted_is_refused(tmp_path: Path) -> None:
    (tmp_path / "allowed").mkdir()
    (tmp_path / "allowed" / "link").symlink_to(tmp_path)
    mounts = [[str(tmp_path / "allowed" / "link"), "/in", False, "user"]]
    order = {"mounts": mounts, "allowed": [str(tmp_path / "allowed")], "binds": False, "folder": str(tmp_path)}

    with pytest.raises(OSError, match="which may not be mounted here") as refused:
        become._volumes({"container": order})
    assert refused.value.errno == errno.EACCES
    order["mounts"] = [[str(tmp_path / "allowed"), "/in", True, "user"], ["/none", "/x", False, "user-if-there"]]
    assert become._volumes({"container": order}) == [f"{tmp_path}/allowed:/in:ro"]


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        ("Error: x: image not known\n", "its container could not be started: x: image not known"),
        ("docker: Error response from daemon: No such image: x.\n", "Error response from daemon: No such image: x."),
        ("FATAL:   could not open image /x.sif\n", "could not open image /x.sif"),
    ],
)
def test_container_that_can_not_be_started_is_not_tried_again(output: str, cause: str) -> None:
    failure = classify(125, None, output, not_contained=True)

    assert (failure.kind, failure.code) == (FailureClass.PERMANENT, "container")
    assert failure.cause.endswith(cause)
    assert classify(125, None, output).code != "container"


def test_runtime_that_starts_no_container_is_named_and_a_command_that_is_missing_is_not(tmp_path: Path) -> None:
    said = "Error: OCI runtime error: crun: cgroups in hybrid mode not supported\n"
    task = {"container": {"pidfile": str(tmp_path / "pid")}}

    assert was_not_started(task, {"exit_code": 126})
    failure = classify(126, None, said, not_contained=True)
    assert (failure.kind, failure.code) == (FailureClass.PERMANENT, "container")
    assert failure.cause.endswith("started: OCI runtime error: crun: cgroups in hybrid mode not supported")
    missing = (
        "Error: crun: executable file `x` not found in $PATH: No such file or directory: OCI runtime attempted to "
    )
    assert classify(127, None, f"{missing}invoke a command that was not found\n", not_contained=True).code == "command"
    (tmp_path / "pid").write_text("17")
    assert not was_not_started(task, {"exit_code": 126}), "it ran, and its command ended so"
    assert not was_not_started({"container": {}}, {"exit_code": 126}), "Docker ends with 125"


@pytest.mark.parametrize(
    ("code", "said", "fault"),
    [(127, "Error: crun: executable file not found", ""), (126, "warning\nError: no cgroups", "Error: no cgroups")],
)
def test_podman_is_tried_without_an_image(
    code: int, said: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "podman"
    program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{said}\nEND\nexit {code}\n")
    program.chmod(0o755)
    monkeypatch.setattr(podman, "SEARCHED", f"{tmp_path}:/usr/bin:/bin")

    assert podman.fault_of_podman() == fault


def test_command_that_is_not_in_the_image_is_named() -> None:
    failure = classify(1, None, "ERROR (catatonit:2): failed to exec pid1: No such file or directory\n")

    assert (failure.code, failure.cause) == ("command", "the command was not found")


def test_variable_with_a_line_break_is_refused_and_others_are_in_no_file() -> None:
    with pytest.raises(OSError, match="A has a line break"):
        become._env_file({"A": "1\n2"})
    path = become._env_file({"A": "1 2", "B": "#='\""})
    assert Path(path).read_text() == "A=1 2\nB=#='\"\n"
    os.close(int(path.rpartition("/")[2]))
