"""A task tries to gain privileges, to leave what it is confined to, and to use more than it was given."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rota
from managers import eventually
from rota.drivers.local.cgroup import Cgroups
from rota.drivers.local.cgroup_search import find
from rota.drivers.local.task_runner.seccomp import REFUSED as CALLS
from strangers import Shared

pytestmark = pytest.mark.slow
REFUSED = ("Permission denied", "No such file", "not permitted", "Read-only", "must be superuser", "denied", "annot")


def attack(what: str, stopped_by: str, command: str, name: str) -> object:
    return pytest.param(command, id=name, marks=pytest.mark.attack(what, stopped_by=stopped_by))


@pytest.mark.attack("runs a program with the setuid bit of root", stopped_by="no_new_privs")
def test_setuid_program_gains_nothing(shared: Shared) -> None:
    tool = shared.manager.folder / "suid-id"
    shutil.copy("/usr/bin/id", tool)
    tool.chmod(0o4755)
    as_control = subprocess.run(
        ["setpriv", f"--reuid={shared.attacker.uid}", "--clear-groups", str(tool), "-u"], capture_output=True, text=True
    )

    said = shared.run(f"{tool} -u; grep NoNewPrivs /proc/self/status")

    assert as_control.stdout == "0\n"  # outside of a task, the bit works
    assert said.split() == [str(shared.attacker.uid), "NoNewPrivs:", "1"]


ESCAPES = [
    attack("becomes another user by su", "no_new_privs; accounts", "echo | su -c id", "su"),
    attack("mounts a file system", "no privileges", "mount -t tmpfs none $ROTA_RUN_DIR", "mount"),
    attack("makes a device node", "no privileges", "mknod $ROTA_RUN_DIR/mem c 1 1", "mknod"),
    attack("takes the private /tmp off", "no privileges", "umount /tmp", "umount"),
    attack(
        "takes the private /tmp off in a namespace of its own",
        "mounts are locked in it",
        "unshare -Urm umount /tmp",
        "umount in a namespace",
    ),
    attack(
        "takes the private /proc off in a namespace of its own",
        "mounts are locked in it",
        "unshare -Urm umount /proc",
        "umount proc in a namespace",
    ),
    attack("enters the namespaces of the manager", "accounts; private /proc", "nsenter -t {manager} -m ls", "nsenter"),
    attack("changes its root folder", "no privileges", "chroot / id", "chroot"),
    attack("leaves its cgroup", "mode of cgroup files", "sh -c 'echo $$ > {cgroup}/../cgroup.procs'", "leave cgroup"),
    attack(
        "raises its own memory limit",
        "mode of cgroup files",
        "sh -c 'echo -1 > {cgroup}/memory.limit_in_bytes || echo max > {cgroup}/memory.max'",
        "raise memory",
    ),
    attack(
        "raises its own number of processes", "mode of cgroup files", "sh -c 'echo max > {pids}/pids.max'", "raise pids"
    ),
    attack("changes a setting of the kernel", "accounts", "sh -c 'echo 1 > /proc/sys/vm/overcommit_memory'", "sysctl"),
    attack(
        "protects itself from being ended for memory",
        "no privileges",
        "sh -c 'echo -900 > /proc/self/oom_score_adj'",
        "oom score",
    ),
]


@pytest.mark.parametrize("command", ESCAPES)
def test_confinement_can_not_be_left(shared: Shared, command: str) -> None:
    found = find(shared.manager.home)
    cgroup = found.parents["memory"] if isinstance(found, Cgroups) else Path("/sys/fs/cgroup")
    pids = found.parents.get("pids", cgroup) if isinstance(found, Cgroups) else cgroup
    outside = Path("/tmp") / f"outside-{os.getpid()}"
    outside.write_text("of the machine")
    assert shared.manager.process is not None
    filled = command.format(manager=shared.manager.process.pid, cgroup=cgroup, pids=pids)
    try:
        said = shared.run(f"( {filled} ) 2>&1; echo status $?; cat {outside} 2>&1")
    finally:
        outside.unlink()

    assert "status 0" not in said
    assert any(word in said for word in REFUSED), said
    assert "of the machine" not in said


@pytest.mark.attack("leaves a process behind that hides from its session", stopped_by="cgroup of the task")
def test_hidden_process_ends_with_its_job(shared: Shared) -> None:
    job_id = shared.attacker.submit(
        "env -i setsid sh -c 'echo $$ > hidden; exec sleep 600' & "
        "while [ ! -s hidden ]; do sleep 0.01; done; cat hidden"
    )
    shared.manager.wait(job_id)
    hidden = int(shared.manager.said(job_id))

    eventually(lambda: not Path(f"/proc/{hidden}").exists())


def _needs(shared: Shared, controller: str) -> None:
    found = find(shared.manager.home)
    if not isinstance(found, Cgroups) or controller not in found.parents:
        pytest.skip(f"the kernel limits no {controller} here: {found.why}")


@pytest.mark.attack("forks without end", stopped_by="cgroup: pids")
def test_fork_bomb_is_contained(shared: Shared) -> None:
    _needs(shared, "pids")
    job_id = shared.attacker.submit(
        "i=0; while [ $i -lt 200 ]; do sleep 30 & i=$((i+1)); done; echo all", time_limit="20s"
    )

    ended = shared.manager.wait(job_id)

    assert ended["state"] == "failed"
    assert "annot fork" in shared.manager.said(job_id)
    assert "all" not in shared.manager.said(job_id)
    assert shared.manager.client.nodes()


@pytest.mark.attack("takes more memory than it asked for", stopped_by="cgroup: memory")
def test_memory_is_limited(shared: Shared) -> None:
    _needs(shared, "memory")
    hungry = "head -c 300M /dev/zero | tail -c 299M > /dev/null"
    job_id = shared.attacker.submit(hungry, resources={"memory": "50Mi"})

    ended = shared.manager.wait(job_id)

    assert (ended["state"], ended["failure"]) == ("failed", "out-of-memory")


@pytest.mark.attack("asks for no memory and takes all of it", stopped_by="cgroup: a default memory limit")
def test_memory_is_limited_without_a_request(shared: Shared) -> None:
    _needs(shared, "memory")
    job_id = shared.attacker.submit("head -c 900M /dev/zero | tail -c 899M > /dev/null")

    ended = shared.manager.wait(job_id)

    assert (ended["state"], ended["failure"]) == ("failed", "out-of-memory")
    assert "ask for what it needs with `memory`" in ended["message"]
    lines = {line["what"]: line["default"] for line in shared.attacker.client.resources(job_id)}
    assert lines["memory"] == 400 << 20, "`rota show` says so"


@pytest.mark.attack("asks for no memory and is spared when others are not", stopped_by="the kernel takes it first")
def test_tasks_without_a_request_are_taken_first(shared: Shared) -> None:
    scores = [shared.run("cat /proc/self/oom_score_adj", resources=asked) for asked in ({}, {"memory": "50Mi"})]

    assert [int(score) for score in scores] == [500, 0]


@pytest.mark.attack("fills the disk with its output", stopped_by="only the last part of the output is kept")
def test_output_is_bounded(shared: Shared) -> None:
    job_id = shared.attacker.submit("yes | head -c 40000000; echo end")

    shared.manager.wait(job_id)

    said = shared.manager.said(job_id)
    assert said.startswith("[rota: ")
    assert "bytes of output were dropped here" in said[:100]
    assert said.endswith("y\nend\n")
    assert len(said) < 3 << 20


@pytest.mark.attack("fills /dev/shm past its memory", stopped_by="cgroup: memory")
def test_shared_memory_counts_as_memory(shared: Shared) -> None:
    _needs(shared, "memory")
    job_id = shared.attacker.submit("head -c 200M /dev/zero > /dev/shm/x; echo $?", resources={"memory": "50Mi"})

    shared.manager.wait(job_id)

    assert shared.manager.said(job_id) != "0\n"


DEVICES = [
    pytest.param(
        0,
        {},
        id="none assigned",
        marks=pytest.mark.attack("opens a device without having asked for one", stopped_by="cgroup: devices"),
    ),
    pytest.param(
        1,
        {},
        id="another's device",
        marks=pytest.mark.attack("opens the device of another job", stopped_by="cgroup: devices"),
    ),
    pytest.param(
        1,
        {"CUDA_VISIBLE_DEVICES": "0,1"},
        id="variable changed",
        marks=pytest.mark.attack("names all devices in its variables", stopped_by="cgroup: devices"),
    ),
]


@pytest.mark.parametrize(("gpus", "env"), DEVICES)
def test_only_assigned_devices_open(shared: Shared, gpus: int, env: dict[str, str]) -> None:
    _needs(shared, "devices")
    look = "; ".join(
        f"head -c 1 {shared.device.replace('{index}', str(index))} >/dev/null 2>&1 && echo {index} opened"
        for index in (0, 1)
    )

    job_id = shared.attacker.submit(f"{look}; echo $ROTA_GPUS", resources={"gpus": gpus}, env=env)
    shared.manager.wait(job_id)
    opened = [line for line in shared.manager.said(job_id).splitlines() if "opened" in line]

    assert len(opened) == gpus
    assert shared.manager.said(job_id).splitlines()[-1] == str(gpus)


@pytest.mark.parametrize(
    "command",
    [
        attack(
            "fills its run folder", "scratch limit", "head -c 64M /dev/zero > $ROTA_RUN_DIR/big; sleep 30", "run folder"
        ),
        attack("fills its /tmp", "scratch limit", "head -c 64M /dev/zero > /tmp/big; sleep 30", "tmp"),
        attack(
            "fills the disk by a file that it has deleted",
            "scratch limit",
            "exec 5>$ROTA_RUN_DIR/big; rm $ROTA_RUN_DIR/big; head -c 64M /dev/zero >&5; sleep 30",
            "deleted file",
        ),
        attack(
            "fills its folder with many small files",
            "scratch limit",
            "i=0; while [ $i -lt 40 ]; do head -c 1M /dev/zero > $ROTA_RUN_DIR/f$i; i=$((i+1)); done; sleep 30",
            "many files",
        ),
        attack(
            "uses up the inodes of the disk with empty files",
            "scratch limit: each file counts at least 16 KiB",
            "mkdir -p e; cd e; seq 1 3000 | xargs touch; sleep 30",
            "empty files",
        ),
        attack(
            "hides what it writes in folders deeper than any path",
            "scratch limit: such folders count as too much",
            "for i in $(seq 120); do mkdir $NAME; cd $NAME; done; head -c 64M /dev/zero > big; sleep 30",
            "deep folders",
        ),
    ],
)
def test_scratch_space_is_limited(shared: Shared, command: str) -> None:
    job_id = shared.attacker.submit(command, env={"NAME": "d" * 100})

    ended = shared.manager.wait(job_id)

    assert (ended["state"], ended["failure"]) == ("failed", "out-of-scratch")
    assert ended["message"] == "out of scratch space: it wrote more to its folders than it may (permanent)"


TRY = (
    "import sys,ctypes,os; sys.path.append({root!r}); from rota.drivers.local.task_runner import confine; "
    "confine.give_up_privileges({{'seccomp': True}}); c=ctypes.CDLL(None,use_errno=True); "
    "print(c.syscall({number},0,0,0,0,0), os.strerror(ctypes.get_errno()))"
)
NUMBERS = CALLS.get(os.uname().machine, {})
WHAT = {
    "ptrace": "debugs a process",
    "process_vm_readv": "reads a process",
    "keyctl": "reads the kernel's keys",
    "bpf": "loads a program into the kernel",
    "mount": "mounts",
    "kexec_load": "starts another kernel",
    "userfaultfd": "handles page faults to win races",
    "io_uring_setup": "goes around the filter by io_uring",
    "pidfd_getfd": "takes a file out of a process",
    "open_by_handle_at": "opens files past their folders",
    "unshare": "makes namespaces",
    "perf_event_open": "watches other processes' counters",
}


@pytest.mark.skipif(not NUMBERS, reason="the system calls of this machine are not known")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.attack(f"{what}, under the profile", stopped_by=f"seccomp: {name}"))
        for name, what in WHAT.items()
    ],
)
def test_profile_refuses_system_calls(name: str) -> None:
    root = str(Path(rota.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", TRY.format(root=root, number=NUMBERS[name])], capture_output=True, text=True
    )

    assert done.stdout == "-1 Operation not permitted\n", done.stderr


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="only x86_64 has a second numbering")
@pytest.mark.attack("calls by the second numbering of x86_64", stopped_by="seccomp: numbers from 0x40000000 on")
def test_profile_refuses_the_other_numbering() -> None:
    root = str(Path(rota.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", TRY.format(root=root, number=0x40000000 + 101)],
        capture_output=True,
        text=True,
    )

    assert done.stdout == "-1 Function not implemented\n", done.stderr


@pytest.mark.attack("leaves shared memory of System V behind", stopped_by="System V objects of the task's own")
def test_shared_memory_ends_with_the_task(shared: Shared) -> None:
    segments = Path("/proc/sysvipc/shm")
    before = segments.read_text()

    said = shared.run("ipcmk --shmem 1000000 && ipcs --shmems | grep --count 1000000")

    assert said.strip().endswith("1")
    assert segments.read_text() == before
