"""Sessions in jobs: run, exec and attach with real terminals and pipes, over kills of the manager."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import forked
from managers import Manager, eventually
from rota.sdk.client import Client, Refused
from terminals import UserTerminal

pytestmark = pytest.mark.slow


def at_terminal(manager: Manager, *args: str) -> closing[UserTerminal]:
    """A command that a user runs at a terminal."""
    return closing(UserTerminal(args, manager.env, manager.folder))


def shell(manager: Manager) -> closing[UserTerminal]:
    """A user with a shell in a job of its own."""
    return at_terminal(manager, "run", "-e", "PS1=ready> ", "--", "sh")


def newest(manager: Manager) -> str:
    """The id of the job that was submitted last."""
    return str(next(iter(manager.client.jobs(all=True, limit=1)))["id"])


def test_shell_in_a_job_feels_like_one_here(shared: Manager) -> None:
    with shell(shared) as user:
        user.see(b"ready> ")
        user.type(b"echo a$((1+1))b; tty; stty size\n")
        user.see(b"a2b")
        user.see(b"/dev/pts/")
        user.see(b"24 80")
        user.resize(40, 100)
        user.type(b"until [ \"$(stty size)\" = '40 100' ]; do sleep 0.05; done; echo large$((1))r\n")
        user.see(b"large1r")  # what is typed may overtake the size
        user.type(b"sh -c 'echo go$((1))ne; exec sleep 1000'\n")
        user.see(b"go1ne")  # by now the terminal is the program's
        user.type(b"\x03")  # Ctrl-C: the program's, not ours
        user.see(b"ready> ")
        user.type(b"exit 9\n")

        assert user.ends() == 9
    job = shared.client.job(newest(shared))
    assert (job["state"], job["exit_code"], job["attempt"]) == ("failed", 9, 1)


def test_input_and_outputs_are_pipes_without_a_terminal(shared: Manager) -> None:
    sent = os.urandom(3_000_000)
    with forked.popen(
        ["run", "--", "sh", "-c", "cat; echo problem >&2; exit 4"],
        env=shared.env,
        cwd=shared.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        out, err = process.communicate(sent, timeout=120)

    assert out == sent
    assert (err, process.returncode) == (b"problem\n", 4)


@pytest.mark.parametrize(
    ("command", "out", "status"),
    [("true", "", 0), ("echo done", "done\n", 0), ("echo before; kill -9 $$", "before\n", 137), ("exit 3", "", 3)],
)
def test_what_a_quick_command_says_and_returns_arrives(shared: Manager, command: str, out: str, status: int) -> None:
    ran = shared.rota("run", "--", "sh", "-c", command)

    assert (ran.stdout, ran.returncode) == (out, status), ran.stderr


def test_killed_manager_keeps_the_shell_and_its_user_comes_back(manager: Manager) -> None:
    port = manager.client.url.rpartition(":")[2]
    manager.options = (*manager.options, "--port", port)
    with shell(manager) as user:
        user.see(b"ready> ")
        user.type(b"kept=17; echo o$kept\n")
        user.see(b"o17")
        manager.kill()
        user.see(b"trying to come back")
        user.type(b"echo typed-meanwhile-$kept\n")
        manager.start()
        user.see(b"typed-meanwhile-17")  # what was typed is sent once, when the manager is there again
        user.type(b"\n~.")
        user.see(b"goes on; come back with `rota attach")
        assert user.ends() == 0
    job_id = newest(manager)
    manager.kill()
    manager.start()
    with at_terminal(manager, "attach", job_id) as user:
        user.see(b"typed-meanwhile-17")  # the latest output is shown again
        user.type(b"echo still-$kept; exit 5\n")
        user.see(b"still-17")
        assert user.ends() == 5


def test_pipes_lose_and_repeat_nothing_over_a_killed_manager(manager: Manager, tmp_path: Path) -> None:
    port = manager.client.url.rpartition(":")[2]
    manager.options = (*manager.options, "--port", port)
    sent = b"".join(b"%07d\n" % number for number in range(400_000))
    go = tmp_path / "go"
    os.mkfifo(go)
    command = f"head -c 800000; read x < {go}; cat"
    with (tmp_path / "out").open("wb") as out:
        process = forked.popen(
            ["run", "--", "sh", "-c", command],
            env=manager.env,
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.DEVNULL,
        )
    feeder = subprocess.Popen([sys.executable, "-c", FEED, str(len(sent) // 8)], stdout=process.stdin)
    assert process.stdin is not None
    process.stdin.close()
    eventually(lambda: (tmp_path / "out").stat().st_size >= 800_000)
    manager.kill()
    go.write_text("on\n")
    manager.start()

    assert process.wait(timeout=120) == 0
    feeder.wait()
    assert (tmp_path / "out").read_bytes() == sent


FEED = """
import sys
for number in range(int(sys.argv[1])):
    sys.stdout.write(f"{number:07d}\\n")
"""


def test_exec_runs_where_the_task_runs(shared: Manager) -> None:
    probe = "echo $ROTA_JOB_ID $ROTA_RANK $ROTA_TASK_TOKEN; cat /proc/self/cgroup; readlink /proc/self/ns/mnt; pwd; id"
    job_id = shared.submit(f"{probe}; exec sleep 1000", name="probed")
    shared.wait(job_id, "running")
    said = eventually(lambda: shared.said(job_id) if "uid=" in shared.said(job_id) else "")

    ran = shared.rota("exec", job_id, "--", "sh", "-c", f"{probe}; exit 6")

    assert (ran.stdout, ran.returncode) == (said, 6), ran.stderr
    assert ran.stdout.startswith(f"{job_id} 0 ")


def test_commands_beside_a_task_end_with_it(shared: Manager) -> None:
    job_id = shared.submit("exec sleep 1000")
    shared.wait(job_id, "running")
    with at_terminal(shared, "exec", job_id, "--", "sh", "-c", "trap '' TERM HUP; echo here; sleep 1000") as user:
        user.see(b"here")
        sessions = shared.client.get(f"/jobs/{job_id}/sessions")
        assert [(each["session"], each["tty"], each["clients"]) for each in sessions] == [("1", True, 1)]

        shared.client.act(job_id, "cancel")

        assert user.ends() != 0
    shared.wait(job_id, "cancelled")
    eventually(lambda: not any(job_id in line for line in tasks_of(shared)))


def tasks_of(manager: Manager) -> list[str]:
    """Which jobs processes of tasks still belong to."""
    found = []
    for pid in manager.task_processes():
        try:
            found += Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
    return [line.removeprefix("ROTA_JOB_ID=") for line in found if line.startswith("ROTA_JOB_ID=")]


def test_client_that_is_killed_finds_its_command_again(shared: Manager) -> None:
    job_id = shared.submit("exec sleep 1000")
    shared.wait(job_id, "running")
    with at_terminal(shared, "exec", job_id, "--", "sh", "-c", "echo one; read x; echo got-$x") as user:
        user.see(b"one")
        user.process.kill()
    eventually(lambda: shared.client.get(f"/jobs/{job_id}/sessions")[0]["clients"] == 0)
    with at_terminal(shared, "attach", job_id, "--session", "1") as user:
        user.see(b"one")
        user.type(b"two\n")
        user.see(b"got-two")
        assert user.ends() == 0


def test_closed_terminal_hangs_up_a_command_and_leaves_a_job(shared: Manager) -> None:
    job_id = shared.submit("exec sleep 1000")
    shared.wait(job_id, "running")
    with at_terminal(shared, "exec", job_id, "--", "sh", "-c", "echo here; exec sleep 1000") as user:
        user.see(b"here")
        user.process.send_signal(signal.SIGHUP)
        assert user.ends() == 128 + signal.SIGHUP
    eventually(lambda: len(tasks_of(shared)) == 1)
    with shell(shared) as user:
        user.see(b"ready> ")
        user.process.send_signal(signal.SIGHUP)
        assert user.ends() == 128 + signal.SIGHUP
    assert shared.state(newest(shared)) == "running"


def test_watching_a_job_types_nothing_into_it(shared: Manager) -> None:
    with shell(shared) as user:
        user.see(b"ready> ")
        job_id = newest(shared)
        with at_terminal(shared, "attach", "--watch", job_id) as other:
            other.see(b"ready> ")
            other.type(b"echo intruder\n")
            user.type(b"echo mine\n")
            other.see(b"mine\r\n")
            assert b"intruder" not in other.shown + user.shown
        user.type(b"exit\n")
        assert user.ends() == 0


def test_what_has_no_session_is_said(shared: Manager) -> None:
    job_id = shared.submit("exec sleep 1000")
    shared.wait(job_id, "running")

    assert "has no terminal; follow it with `rota logs -f" in shared.rota("attach", job_id).stderr
    assert "there is no task 7" in shared.rota("exec", job_id, "--rank", "7", "--", "true").stderr
    assert shared.rota("exec", job_id, "--", "no-such-program").returncode == 127
    shared.client.act(job_id, "cancel")
    shared.wait(job_id, "cancelled")
    ran = shared.rota("exec", job_id, "--", "true")
    assert (ran.returncode, "has ended (cancelled)" in ran.stderr) == (2, True), ran.stderr


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Manager]:
    """A manager that asks for tokens."""
    made = Manager(tmp_path, "--emulate", "gpu=8/4", "--require-token").start_guarded()
    made.env["ROTA_SERVER"] = made.client.url
    yield made
    made.clean_up()


def test_only_the_owner_opens_a_session_and_a_revoked_token_ends_it(guarded: Manager) -> None:
    made = {}
    for name, role, tenants in (
        ("ada", "member", ["nlp"]),
        ("bob", "member", ["nlp"]),
        ("eve", "maintainer", ["vision"]),
    ):
        made[name] = guarded.client.post("/tokens", {"name": name, "role": role, "tenants": tenants})
    ada, bob, eve = (Client(guarded.client.url, made[name]["token"]) for name in ("ada", "bob", "eve"))
    job_id = ada.submit({"run": "exec sleep 1000", "tenant": "nlp"})[0]
    guarded.wait(job_id, "running")
    with pytest.raises(Refused, match="belongs to 'ada'") as refused:
        bob.session(job_id, mode="exec")
    assert refused.value.status == 403
    with pytest.raises(Refused, match="no job") as unseen:
        eve.session(job_id, mode="exec")
    assert unseen.value.status == 404
    guarded.env["ROTA_TOKEN"] = made["ada"]["token"]
    with at_terminal(guarded, "exec", job_id, "--", "sh", "-c", "echo mine; exec sleep 1000") as user:
        user.see(b"mine")
        assert len(tasks_of(guarded)) == 2

        guarded.client.delete(f"/tokens/{made['ada']['id']}")

        user.see(b"the token is no longer valid", within_s=120)
        assert user.ends() == 255
    eventually(lambda: len(tasks_of(guarded)) == 1)
    entries = [(each["who"], each["what"], each["thing"]) for each in guarded.client.audit(50)]
    assert ("ada", "session-exec", job_id) in entries
    assert ("bob", "refused", "127.0.0.1") in [(who, what, thing) for who, what, thing in entries if who == "bob"]
