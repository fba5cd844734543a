"""A real Slurm for tests: munged, slurmctld and several slurmd of one host, on loopback, in a folder of its own.

MariaDB and slurmdbd are started where accounting is asked for.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e.slurm.programs import find_programs, find_rest, find_tokens
from managers import eventually
from ports import free_port
from rota.drivers.slurm.submit_script import submit_script

Json = dict[str, Any]
READY_S = float(os.environ.get("ROTA_READY_S", "60"))
KEEPS_TIME = ("mariadbd",)
"""Programs that always have the true clock."""
ENDED = frozenset({"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"})


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The cluster of a bed."""

    nodes: int = 2
    names: tuple[str, ...] = ()
    """The names of nodes; `n1` and so on without them."""
    gpus: int = 4
    gpu_type: str = "a100"
    cpus: int = 16
    memory_mb: int = 4000
    held: bool = True
    """Whether jobs of the partition `rota` are held at submission."""
    more: str = ""
    """Further lines of slurm.conf."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of slurm.conf that differ from those below."""
    auth: str = "munge"
    """`none` believes what programs say of themselves; munge waits for two seconds only, which a fast clock cuts."""
    tokens: bool = False
    """Whether programs may show a token (auth/jwt) instead."""


class SlurmBed:
    """One cluster, started and stopped at will; daemons can be killed by name and started again."""

    def __init__(
        self, shape: Shape | None = None, *, accounting: bool = False, clock: Mapping[str, str] | None = None
    ) -> None:
        """`clock` is the environment that gives Slurm and its jobs another clock, by libfaketime."""
        find_programs(accounting=accounting)
        if shape is not None and shape.tokens:
            find_tokens()
        self.shape = shape or Shape()
        self._clock = dict(clock or {})
        self.folder = Path(tempfile.mkdtemp(prefix="rota-slurm-", dir="/tmp"))  # munged refuses folders of others
        self.folder.chmod(0o755)
        self.accounting = accounting
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        ports = [free_port() for _ in range(self.shape.nodes + 3)]
        self._node_ports, (self._port, self._dbd_port, self._sql_port) = ports[:-3], ports[-3:]
        self.env = {
            **os.environ,
            "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin",
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "LC_ALL": "C.UTF-8",
            **self._clock,
        }
        self._write_files()

    @property
    def node_names(self) -> list[str]:
        return list(self.shape.names) or [f"n{number + 1}" for number in range(self.shape.nodes)]

    # -- files -----------------------------------------------------------------------------------

    def _write_files(self) -> None:
        for name in ("state", "munge", *(f"spool-{node}" for node in self.node_names)):
            (self.folder / name).mkdir(mode=0o700)
        key = self.folder / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        (self.folder / "jwt.key").write_bytes(os.urandom(32))
        (self.folder / "jwt.key").chmod(0o600)
        self._write_gres()
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        if self.shape.held:
            (self.folder / "job_submit.lua").write_text(submit_script(["rota"]))
        (self.folder / "slurm.conf").write_text(self._slurm_conf())

    def _write_gres(self) -> None:
        """GRES from device files: plain files, for slurmd only counts them."""
        lines = []
        for node in self.node_names:
            for number in range(self.shape.gpus):
                path = self.folder / f"gpu-{node}-{number}"
                os.mknod(path, 0o600 | 0o020000, os.makedev(1, 3))  # /dev/null under another name
                lines.append(f"NodeName={node} Name=gpu Type={self.shape.gpu_type} File={path}")
        (self.folder / "gres.conf").write_text("AutoDetect=off\n" + "\n".join(lines) + "\n")

    def _slurm_conf(self) -> str:
        host, shape, folder = socket.gethostname().split(".")[0], self.shape, self.folder
        nodes = "\n".join(
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={shape.cpus} "
            f"RealMemory={shape.memory_mb} Gres=gpu:{shape.gpu_type}:{shape.gpus} "
            f"Feature=fast,{'even' if index % 2 else 'odd'} State=UNKNOWN"
            for index, (name, port) in enumerate(zip(self.node_names, self._node_ports, strict=True))
        )
        submit = "JobSubmitPlugins=lua" if shape.held else ""
        storage = ""
        if self.accounting:
            storage = (
                "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\n"
                f"AccountingStoragePort={self._dbd_port}\n{self._storage_pass()}"
                "AccountingStorageTRES=gres/gpu\n"
                "AccountingStorageEnforce=associations,limits,qos\nPriorityType=priority/multifactor\n"
            )
        lines = f"""ClusterName=bed
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
{self._auth()}
CredType=cred/{shape.auth}
SlurmctldPort={self._port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=1
GresTypes=gpu
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_min_interval=20000,batch_sched_delay=0,nohold_on_prolog_fail,requeue_delay=0
JobRequeue=1
KillWait=1
SlurmctldTimeout=10
SlurmdTimeout=20
InactiveLimit=0
MinJobAge=300
MaxJobCount=20000
{submit}
{storage}
{shape.more}
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=10:00 State=UP OverSubscribe=NO
PartitionName=rota Nodes=ALL MaxTime=INFINITE DefaultTime=10:00 State=UP OverSubscribe=NO
"""
        kept = [line for line in lines.splitlines() if line.partition("=")[0] not in shape.settings]
        return "\n".join([*kept, *(f"{name}={value}" for name, value in shape.settings.items())]) + "\n"

    def _auth(self) -> str:
        key = f"{self.folder}/jwt.key"
        tokens = f"\nAuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={key}" if self.shape.tokens else ""
        if self.shape.auth == "none":
            return f"AuthType=auth/none{tokens}"
        return f"AuthType=auth/munge\nAuthInfo=socket={self.folder}/munge/socket{tokens}"

    def _storage_pass(self) -> str:
        return "" if self.shape.auth == "none" else f"AccountingStoragePass={self.folder}/munge/socket\n"

    # -- daemons ---------------------------------------------------------------------------------

    def start(self) -> SlurmBed:
        """Start all daemons and wait until every node is ready."""
        try:
            self._start_all()
        except BaseException:
            self.stop()
            raise
        return self

    def _start_all(self) -> None:
        folder = self.folder
        munge = ("--force", "--foreground", f"--socket={folder}/munge/socket", f"--key-file={folder}/munge/key")
        more = (f"--pid-file={folder}/munge/pid", f"--log-file={folder}/munge/log", f"--seed-file={folder}/munge/seed")
        if self.shape.auth == "munge":
            self._spawn("munged", *munge, *more)
            eventually((folder / "munge" / "socket").exists, within_s=READY_S)
        if self.accounting:
            self._start_accounting()
        self.start_controller()
        for name in self.node_names:
            self.start_node(name)
        eventually(lambda: all(state.startswith("idle") for state in self.node_states().values()), within_s=READY_S)

    def _start_accounting(self) -> None:
        folder, data = self.folder, self.folder / "sql"
        user = pwd.getpwuid(os.geteuid()).pw_name
        install = ["mariadb-install-db", "--no-defaults", f"--datadir={data}", f"--user={user}", "--skip-test-db"]
        subprocess.run(install, check=True, capture_output=True, timeout=120, env=self.env)
        self._spawn(
            "mariadbd",
            *("--no-defaults", f"--datadir={data}", f"--user={user}", f"--socket={folder}/sql.sock"),
            *("--bind-address=127.0.0.1", f"--port={self._sql_port}", f"--pid-file={folder}/sql.pid"),
            *("--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0", "--skip-name-resolve"),
        )
        sql = "CREATE USER slurm@'127.0.0.1' IDENTIFIED BY 'slurm'; GRANT ALL ON *.* TO slurm@'127.0.0.1';"
        ask = ["mariadb", "--no-defaults", f"--socket={folder}/sql.sock", "-e", sql]
        eventually(lambda: subprocess.run(ask, capture_output=True).returncode == 0, within_s=READY_S, every_s=0.2)
        host = socket.gethostname().split(".")[0]
        conf = folder / "slurmdbd.conf"
        conf.write_text(
            f"{self._auth()}\nDbdHost={host}\nDbdAddr=127.0.0.1\n"
            f"DbdPort={self._dbd_port}\nSlurmUser=root\nStorageType=accounting_storage/mysql\n"
            f"StorageHost=127.0.0.1\nStoragePort={self._sql_port}\nStorageUser=slurm\nStoragePass=slurm\n"
            f"LogFile={folder}/slurmdbd.log\nPidFile={folder}/slurmdbd.pid\n"
        )
        conf.chmod(0o600)
        self._spawn("slurmdbd", "-D")
        command = ["sacctmgr", "-i", "-n", "show", "cluster"]
        eventually(lambda: self._try(command), within_s=READY_S, every_s=0.3)
        self.do("sacctmgr", "-i", "add", "cluster", "bed")
        for account, share in (("vision", "3"), ("nlp", "1")):
            self.do("sacctmgr", "-i", "add", "account", account, f"fairshare={share}", "cluster=bed")
        self.do("sacctmgr", "-i", "add", "user", "root", "account=vision,nlp", "defaultaccount=vision", "cluster=bed")

    def add_account(self, name: str) -> None:
        """Add an account for the user of the tests."""
        self.do("sacctmgr", "-i", "add", "account", name, "cluster=bed")
        self.do("sacctmgr", "-i", "add", "user", "root", f"account={name}", "cluster=bed")

    def add_qos(self, name: str, priority: int = 0, *more: str) -> None:
        """Add a QOS that everyone may use, if there is none of that name."""
        if name not in self.do("sacctmgr", "-nP", "show", "qos", "format=Name").splitlines():
            self.do("sacctmgr", "-i", "add", "qos", name, f"priority={priority}", *more)
            self.do("sacctmgr", "-i", "modify", "account", "root", "set", f"qos+={name}")

    def can(self, *command: str) -> bool:
        """Whether a command of Slurm succeeds."""
        return self._try(command)

    def _try(self, command: Sequence[str]) -> bool:
        return subprocess.run(command, env=self.env, capture_output=True, timeout=20).returncode == 0

    def start_controller(self) -> None:
        self._spawn("slurmctld", "-D")
        eventually(lambda: self._try(["scontrol", "ping"]), within_s=READY_S, every_s=0.1)

    def start_node(self, name: str) -> None:
        self._spawn("slurmd", "-D", "-N", name, key=name)

    def start_rest(self) -> str:
        """Start slurmrestd, which must not run as root; return its address. It wants tokens where there are any."""
        find_rest()
        nobody = ("--reuid=65534", "--regid=65534", "--clear-groups")
        if self.shape.tokens:
            port = free_port()
            serve = ("slurmrestd", "-a", "rest_auth/jwt", f"127.0.0.1:{port}")
            self._spawn("setpriv", *nobody, *serve, key="slurmrestd", more={"SLURM_JWT": "daemon"})
            eventually(lambda: _answers(port), within_s=READY_S)
            return f"http://127.0.0.1:{port}"
        place = self.folder / "rest"
        place.mkdir(mode=0o777)
        place.chmod(0o777)
        (self.folder / "munge").chmod(0o755)
        listen = ("-a", "rest_auth/local", f"unix:{place}/socket")
        self._spawn("setpriv", *nobody, "slurmrestd", *listen, key="slurmrestd")
        eventually((place / "socket").exists, within_s=READY_S)
        return f"unix:{place}/socket"

    def _spawn(self, program: str, *arguments: str, key: str = "", more: Mapping[str, str] | None = None) -> None:
        log = (self.folder / f"{key or program}.out").open("ab")
        not_theirs = self._clock if program in KEEPS_TIME else {}
        env = {name: value for name, value in self.env.items() if name not in not_theirs} | dict(more or {})
        self._running[key or program] = subprocess.Popen(
            [program, *arguments], env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder
        )
        log.close()

    def kill(self, name: str) -> None:
        """Kill a daemon with signal 9: `slurmctld`, or a slurmd by the name of its node."""
        process = self._running.pop(name)
        process.kill()
        process.wait(30)

    def stop(self) -> None:
        """End all jobs and daemons, and remove the folder."""
        if "slurmctld" in self._running:
            self._try(["scancel", "--user=root"])
            self._try(["scancel", "--signal=KILL", "--full", "--user=root"])
        for name in reversed(self._running):
            self._running[name].send_signal(signal.SIGTERM)
        for process in self._running.values():
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(15)
        self._running.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- what tests ask --------------------------------------------------------------------------

    def do(self, *command: str, within_s: float = 30.0) -> str:
        """Run a command of Slurm and return what it prints."""
        made = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=within_s, cwd=self.folder)
        assert made.returncode == 0, f"{' '.join(command)}: {made.stderr or made.stdout}"
        return made.stdout.strip()

    def submit(self, work: str, *options: str) -> str:
        """Submit a script; return the id of the job."""
        return self.do("sbatch", "--parsable", "--output=/dev/null", *options, f"--wrap={work}").split(";")[0]

    def state(self, job: str) -> str:
        """The state of a job, in Slurm's words."""
        line = self.do("scontrol", "-o", "show", "job", job)
        return next(word.partition("=")[2] for word in line.split() if word.startswith("JobState="))

    def states(self) -> dict[str, str]:
        """The states of all jobs that the controller still knows."""
        found = {}
        for line in self.do("scontrol", "-o", "show", "job").splitlines():
            values = dict(word.split("=", 1) for word in line.split() if "=" in word)
            if "JobId" in values:
                found[values["JobId"]] = values["JobState"]
        return found

    def node_states(self) -> dict[str, str]:
        """The states of all nodes."""
        lines = self.do("sinfo", "-h", "-N", "-o", "%N %T").splitlines()
        return dict(line.split() for line in lines)

    def lose(self, node: str) -> None:
        """Lose a node; slurmctld is told at once what it would find out by itself."""
        self.kill(node)
        self.do("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")

    def bring_back(self, node: str) -> None:
        """Have a node that was lost take jobs again."""
        self.start_node(node)
        self._try(["scontrol", "update", f"NodeName={node}", "State=RESUME"])  # refused if it has returned by itself
        eventually(lambda: self.node_states()[node].startswith("idle"), within_s=READY_S, every_s=0.2)

    def wait(self, jobs: Sequence[str], within_s: float = 60.0) -> dict[str, str]:
        """Wait until jobs have ended; return their states."""

        def ended() -> dict[str, str]:
            states = self.states()
            found = {job: states[job] for job in jobs}
            return found if all(state in ENDED for state in found.values()) else {}

        return eventually(ended, within_s=within_s, every_s=0.2)

    def json(self, *command: str) -> Json:
        """What a command prints as JSON."""
        value: Json = json.loads(self.do(*command))
        return value


def _answers(port: int) -> bool:
    """Whether a server takes connections."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
