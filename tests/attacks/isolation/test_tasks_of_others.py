"""A task tries to read, signal or disturb the tasks of another user."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from managers import eventually
from strangers import Shared

pytestmark = pytest.mark.slow
PYTHON = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")
SECRET = "of the victim"
REFUSED = (
    "Permission denied",
    "No such file",
    "Operation not permitted",
    "No such process",
    "annot open",
    "denied",
    "nonexistent",
)


def attack(what: str, stopped_by: str, command: str, name: str) -> object:
    return pytest.param(command, id=name, marks=pytest.mark.attack(what, stopped_by=stopped_by))


@pytest.fixture(scope="module")
def prey(shared: Shared) -> tuple[str, int]:
    """A job of the victim that keeps a secret in its environment, its folder, its /tmp and in memory."""
    hide = (
        "umask 0; echo of the victim > $ROTA_RUN_DIR/notes; echo of the victim > /tmp/notes; "
        "echo of the victim > /dev/shm/notes; chmod 777 /tmp/notes $ROTA_RUN_DIR $ROTA_RUN_DIR/notes; "
        "echo of the victim; sleep 600"
    )
    return shared.prey(hide, env={"KEY": {"secret": SECRET}})


READS = [
    attack("reads the environment of another's task", "accounts; private /proc", "cat /proc/{pid}/environ", "environ"),
    attack(
        "reads the command line of another's task",
        "private /proc",
        "cat /proc/{pid}/cmdline; ls /proc/{pid}",
        "cmdline",
    ),
    attack("lists the open files of another's task", "private /proc", "ls -l /proc/{pid}/fd", "fd"),
    attack("reads the memory of another's task", "accounts", "head -c 9 /proc/{pid}/mem", "mem"),
    attack(
        "enters the file system through another's task",
        "accounts; private /proc",
        "cat /proc/{pid}/root/tmp/notes",
        "root",
    ),
    attack("reads another's folder through its working directory", "accounts", "cat /proc/{pid}/cwd/notes", "cwd"),
    attack("lists the folder of another's job", "folder modes", "ls {folder}", "list folder"),
    attack(
        "reads a file in the folder of another's job, whose mode the victim opened",
        "folder modes",
        "cat {rank}/../../private-1/tmp/notes",
        "private tmp",
    ),
    attack(
        "reads the output of another's task",
        "files of the manager alone",
        "cat {rank}/output-000000000000000.log",
        "output",
    ),
    attack(
        "reads the order of another's task, with its secrets",
        "files of the manager alone",
        "cat {rank}/task.json",
        "order",
    ),
    attack("looks for another's files in /tmp", "private /tmp", "cat /tmp/notes", "tmp"),
    attack("looks for another's files in /var/tmp", "private /tmp", "cat /var/tmp/notes", "var tmp"),
    attack("looks for another's shared memory", "private /dev/shm", "cat /dev/shm/notes", "shm"),
    attack(
        "writes into the output of another's task",
        "accounts; private /proc",
        "echo forged > /proc/{pid}/fd/1",
        "write output",
    ),
    attack(
        "reports progress to the supervisor of another's task", "mode of the pipe", "echo saving > {rank}/tell", "tell"
    ),
    attack("puts a file into the attempt of another's job", "folder modes", "touch {rank}/stop.json", "stop order"),
    attack("ends another's task", "accounts", "kill -9 {pid}", "kill"),
    attack("suspends another's task", "accounts", "kill -STOP {pid}", "suspend"),
    attack("slows another's task down", "accounts", "renice -n 19 -p {pid}", "renice"),
]


@pytest.mark.parametrize("command", READS)
def test_stranger_gets_nothing_and_changes_nothing(shared: Shared, prey: tuple[str, int], command: str) -> None:
    job_id, pid = prey
    filled = command.format(pid=pid, folder=shared.folder(job_id), rank=shared.rank(job_id))

    said = shared.run(f"{filled} 2>&1; echo status $?")

    assert SECRET not in said
    assert "status 0" not in said
    assert any(word in said for word in REFUSED), said
    assert shared.manager.state(job_id) == "running", shared.manager.said(job_id)
    assert Path(f"/proc/{pid}/stat").read_text().split()[2] in "SR"
    assert os.getpriority(os.PRIO_PROCESS, pid) == os.getpriority(os.PRIO_PROCESS, 0)
    assert shared.manager.state(job_id) == "running"
    assert shared.manager.said(job_id) == f"{SECRET}\n"


PTRACE = (
    "import ctypes,os; c=ctypes.CDLL(None,use_errno=True); r=c.ptrace({call},{pid},0,0); "
    "print(r, os.strerror(ctypes.get_errno()))"
)
VM_READ = (
    "import ctypes,os; c=ctypes.CDLL(None,use_errno=True); b=ctypes.create_string_buffer(8); "
    "class_=type('V',(ctypes.Structure,),{{'_fields_':[('a',ctypes.c_void_p),('n',ctypes.c_size_t)]}}); "
    "l=class_(ctypes.addressof(b),8); r=class_(0x400000,8); "
    "print(c.process_vm_readv({pid},ctypes.byref(l),1,ctypes.byref(r),1,0), os.strerror(ctypes.get_errno()))"
)
PIDFD = (
    "import ctypes,os; c=ctypes.CDLL(None,use_errno=True); f=os.pidfd_open({pid}); "
    "print(c.syscall(438,f,1,0), os.strerror(ctypes.get_errno()))"
)
AFFINITY = "import os; os.sched_setaffinity({pid}, [0])"


@pytest.mark.skipif(PYTHON is None, reason="there is no python3 that all users can run")
@pytest.mark.parametrize(
    "program",
    [
        attack("attaches a debugger to another's task", "accounts", PTRACE.replace("{call}", "16"), "ptrace attach"),
        attack("seizes another's task", "accounts", PTRACE.replace("{call}", "0x4206"), "ptrace seize"),
        attack("reads another's memory by process_vm_readv", "accounts", VM_READ, "process_vm_readv"),
        attack("takes an open file out of another's task", "accounts", PIDFD, "pidfd_getfd"),
        attack("ties another's task to one CPU", "accounts", AFFINITY, "affinity"),
    ],
)
def test_system_calls_reach_no_other_users_task(shared: Shared, prey: tuple[str, int], program: str) -> None:
    assert PYTHON is not None
    _, pid = prey
    before = os.sched_getaffinity(pid)

    said = shared.run(f'exec 2>&1; {PYTHON} -c "{program.format(pid=pid)}" || true')

    assert any(word in said for word in REFUSED), said
    assert "-1 " in said or "PermissionError" in said
    assert os.sched_getaffinity(pid) == before
    assert "TracerPid:\t0" in Path(f"/proc/{pid}/status").read_text()


@pytest.mark.attack("signals every process that it may", stopped_by="accounts: its own are all that it may")
def test_signal_to_all_reaches_only_the_attackers_own(shared: Shared, prey: tuple[str, int]) -> None:
    job_id, pid = prey
    own = shared.attacker.submit("kill -9 -1; echo still here")

    ended = shared.manager.wait(own)

    assert ended["state"] in ("failed", "succeeded")
    assert Path(f"/proc/{pid}").exists()
    assert shared.manager.state(job_id) == "running"
    assert shared.manager.client.nodes()


@pytest.mark.attack(
    "derives the token by which another's processes are known", stopped_by="tokens by a key of the manager"
)
def test_token_of_another_task_can_not_be_derived(shared: Shared, prey: tuple[str, int]) -> None:
    job_id, pid = prey
    mine = shared.attacker.submit("echo $ROTA_JOB_ID $ROTA_TASK_TOKEN")
    shared.manager.wait(mine)
    number, token = shared.manager.said(mine).split()

    environ = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    victims = next(each.partition("=")[2] for each in environ if each.startswith("ROTA_TASK_TOKEN="))

    assert number in token
    assert token.replace(number, job_id, 1) != victims
    assert token.rpartition("/")[2] != victims.rpartition("/")[2]


@pytest.mark.attack("cancels another's job through the API", stopped_by="tenants of tokens")
def test_job_of_another_can_not_be_cancelled(shared: Shared, prey: tuple[str, int]) -> None:
    from rota.core.errors import RotaError

    job_id, _ = prey
    with pytest.raises(RotaError):
        shared.attacker.client.act(job_id, "cancel")
    assert shared.manager.state(job_id) == "running"


@pytest.mark.attack("works in another user's home", stopped_by="the change of user comes before that of folder")
def test_job_starts_in_no_folder_that_its_user_may_not_enter(shared: Shared) -> None:
    home = subprocess.run(["sh", "-c", f"echo ~{shared.victim.name}"], capture_output=True, text=True).stdout.strip()
    job_id = shared.attacker.submit("pwd; ls", workdir=home)

    ended = shared.manager.wait(job_id)

    assert ended["state"] == "failed"
    assert "Permission denied" in shared.manager.said(job_id)


def test_own_process_can_be_read_as_a_check_of_the_attacks(shared: Shared) -> None:
    """The same commands work against one's own process: what stops them is whose it is."""
    said = shared.run(
        "tr '\\0' '\\n' < /proc/$$/environ | grep -c ROTA_; ls /proc/$$/fd | wc -l; kill -0 $$ && echo mine"
    )

    counts = said.split()
    assert int(counts[0]) > 5
    assert int(counts[1]) >= 3
    assert counts[2] == "mine"


def test_victims_jobs_end_as_they_should(shared: Shared, prey: tuple[str, int]) -> None:
    job_id, pid = prey
    shared.victim.client.act(job_id, "cancel")

    assert shared.manager.wait(job_id)["state"] == "cancelled"
    eventually(lambda: not Path(f"/proc/{pid}").exists())
    eventually(lambda: not (shared.manager.home / "runs" / job_id / "private-1").exists())
