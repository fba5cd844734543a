"""Files of jobs on a real manager: code is packed and run, and what jobs wrote is listed and fetched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import forked
from managers import FINAL, Manager, eventually
from rota.core.errors import RotaError
from rota.sdk.client import Refused
from rota.sdk.snapshot import pack

pytestmark = pytest.mark.slow
Json = dict[str, Any]


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    found = Manager(tmp_path_factory.mktemp("files"), "--emulate", "gpu=4/4").start()
    yield found
    found.stop()


def ended(manager: Manager, job_id: str) -> Json:
    eventually(lambda: manager.client.job(job_id)["state"] in FINAL)
    return manager.client.job(job_id)


def output(manager: Manager, job_id: str) -> str:
    return b"".join(manager.client.logs(job_id)).decode()


def submitted(manager: Manager, folder: Path, *words: str) -> str:
    done = forked.run(("submit", *words), env=manager.env, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    (folder / "lib").mkdir(parents=True)
    (folder / "lib" / "text.txt").write_text("first\n")
    (folder / "run.sh").write_text("#!/bin/sh\ncat lib/text.txt; pwd; echo done > result.txt\n")
    (folder / "run.sh").chmod(0o755)
    return folder


def test_packed_code_runs_though_its_folder_changes_and_can_run_again(manager: Manager, code: Path) -> None:
    commit = "git init -q && git add . && git -c user.name=a -c user.email=a@b commit -qm x"
    subprocess.run(commit, shell=True, cwd=code, check=True)
    held = submitted(manager, code, "--snapshot", "--held", "--", "./run.sh")
    (code / "lib" / "text.txt").write_text("second\n")
    manager.client.act(held, "release")

    job = ended(manager, held)

    assert job["state"] == "succeeded", output(manager, held)
    lines = output(manager, held).split()
    assert lines[0] == "first"
    assert lines[1] == str(manager.home / "runs" / held / "shared" / "code")
    said = job["spec"]["snapshot"]
    assert said["commit"] == subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=code, text=True).strip()
    assert said["dirty"] is False
    assert [file["path"] for file in manager.client.files(held)["files"]][-1] == "code/run.sh"
    again = manager.client.act(held, "requeue")["id"]
    assert again != held
    ended(manager, again)
    assert output(manager, again).split()[0] == "first"
    assert (manager.home / "runs" / again / "shared" / "code" / "result.txt").read_text() == "done\n"


def test_gang_unpacks_once_and_a_second_attempt_finds_what_the_first_wrote(manager: Manager, code: Path) -> None:
    (code / "run.sh").write_text("#!/bin/sh\necho $ROTA_RANK >> ranks; ls; test $ROTA_ATTEMPT = 2\n")

    held = submitted(manager, code, "--snapshot", "--workers", "3", "--max-restarts", "1", "--", "./run.sh")

    assert ended(manager, held)["state"] == "succeeded", output(manager, held)
    ranks = (manager.home / "runs" / held / "shared" / "code" / "ranks").read_text().split()
    assert sorted(ranks)[:1] == ["0"]
    assert len(ranks) > 3


def test_same_code_is_sent_once_and_large_code_in_parts(
    manager: Manager, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.sdk.data_calls.PART", 1000)
    (code / "large").write_bytes(os.urandom(4000))
    sent: list[str] = []
    call = manager.client._call

    def counted(method: str, *rest: Any) -> Any:
        sent.append(method)
        return call(method, *rest)

    monkeypatch.setattr(manager.client, "_call", counted)

    with pack(code) as snapshot:
        manager.client.send_snapshot(snapshot)
        parts = sent.count("PUT")
        manager.client.send_snapshot(snapshot)

    assert parts == -(-snapshot.size // 1000) > 3
    assert sent.count("PUT") == parts


def test_snapshot_that_is_not_what_it_says_is_refused(manager: Manager, code: Path) -> None:
    with pack(code) as snapshot:
        archive = snapshot.archive.read()
    wrong = "0" * 64
    place = f"/snapshots/{wrong}?size={snapshot.size}"

    with pytest.raises(Refused, match=f"snapshot: its digest is {snapshot.digest}, not {wrong}; send it again"):
        manager.client._call("PUT", f"{place}&offset=0", archive)
    assert manager.client._call("GET", place)["have"] == 0
    with pytest.raises(Refused, match="offset is 7 with 0 of"):
        manager.client._call("PUT", f"{place}&offset=7", b"x")
    with pytest.raises(Refused, match=r"job: snapshot: tenant default has no snapshot 000000000000; send it with"):
        manager.client.submit({"run": "true", "snapshot": {"digest": wrong}})
    with pytest.raises(Refused, match="a snapshot is the working directory; drop workdir, or snapshot"):
        manager.client.submit({"run": "true", "workdir": "/", "snapshot": {"digest": wrong}})


def test_files_of_a_job_are_listed_and_fetched(manager: Manager, tmp_path: Path) -> None:
    run = "mkdir -p out/deep; printf model > out/deep/m.bin; printf 'a b' > 'with space'; ln -s /etc/passwd l; mkfifo p"
    job_id = manager.client.submit({"run": f"cd $ROTA_RUN_DIR; {run}"})[0]
    ended(manager, job_id)

    listed = manager.rota("get", job_id, "-o", "json")
    names = [file["path"] for file in json.loads(listed.stdout)]
    done = manager.rota("get", job_id, "out", "--to", str(tmp_path / "here"))
    one = manager.rota("get", job_id, "with space", "--to", str(tmp_path / "one"))

    assert names == ["out/deep/m.bin", "with space"]
    assert "2 links and special files are left out" in listed.stderr
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "here" / "deep" / "m.bin").read_text() == "model"
    assert one.returncode == 0, one.stderr
    assert (tmp_path / "one").read_text() == "a b"
    again = manager.rota("get", job_id, "with space", "--to", str(tmp_path / "one"))
    assert again.returncode == 2
    assert "exists already" in again.stderr
    for wrong in ("none", "l", "p", "out/none", "l/x"):
        assert manager.rota("get", job_id, wrong).returncode == 2, wrong


def test_job_without_files_and_unknown_job_say_so(manager: Manager) -> None:
    job_id = manager.client.submit({"run": "true"})[0]
    ended(manager, job_id)

    assert "no files; a job writes them to $ROTA_RUN_DIR" in manager.rota("get", job_id).stderr
    assert "there is no job '99999'" in manager.rota("get", "99999").stderr


def test_file_that_grows_is_read_as_it_was_announced(manager: Manager, tmp_path: Path) -> None:
    run = "cd $ROTA_RUN_DIR; while :; do echo 0123456789 >> log; done"
    job_id = manager.client.submit({"run": run})[0]
    eventually(lambda: manager.client.files(job_id)["files"])
    try:
        for number in range(5):
            size = manager.client.get_file(job_id, "log", tmp_path / str(number))
            assert (tmp_path / str(number)).stat().st_size == size
    finally:
        manager.client.act(job_id, "cancel")


def test_folder_that_changes_into_a_link_while_it_is_read_gives_nothing_away(manager: Manager) -> None:
    secret = manager.folder / "secret"
    secret.mkdir()
    (secret / "key").write_text("hush")
    run = f"cd $ROTA_RUN_DIR; while :; do mkdir d; echo mine > d/key; rm -r d; ln -s {secret} d; rm d; done"
    job_id = manager.client.submit({"run": run})[0]
    eventually(lambda: (manager.home / "runs" / job_id / "shared").exists())
    seen = set()
    try:
        until = time.monotonic() + 2
        while time.monotonic() < until:
            try:
                seen.add(b"".join(manager.client.read_file(job_id, "d/key")))
            except RotaError:
                seen.add(b"refused")
            assert all(file["path"] in ("d/key",) for file in manager.client.files(job_id)["files"])
    finally:
        manager.client.act(job_id, "cancel")

    assert b"hush" not in seen
    assert b"refused" in seen


def test_templates_are_filled_in_and_submitted(manager: Manager, tmp_path: Path) -> None:
    (tmp_path / "evaluate.py").write_text("import sys; print(sys.argv[1:])\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    path = f"PATH={tmp_path / 'bin'}:/usr/bin:/bin"
    words = ("--template", "evaluation-array", "-p", "shards=2", "-p", "gpus=0", "-p", "model=a b.pt", "-e", path)

    ids = submitted(manager, tmp_path, *words).split()

    assert [ended(manager, job_id)["state"] for job_id in ids] == ["succeeded"] * 2, output(manager, ids[0])
    assert output(manager, ids[1]).strip() == "['--model', 'a b.pt', '--shard', '1', '--shards', '2']"
    refused = manager.rota("submit", "--template", "evaluation-array", "-p", "shard=2")
    assert refused.returncode == 2
    assert "no parameter 'shard'; did you mean 'shards'?" in refused.stderr
    for wrong in (("submit",), ("submit", "-p", "a=1", "--", "true"), ("submit", "--template", "x", "--", "true")):
        assert manager.rota(*wrong).returncode == 2, wrong


def test_a_tenant_has_templates_of_its_own(manager: Manager, tmp_path: Path) -> None:
    file = tmp_path / "hello.yaml"
    file.write_text("description: says it\nparameters: {word: {}}\njob: {name: hello, run: 'echo {{ word }}'}\n")

    assert manager.rota("template", "add", str(file), "--tenant", "nlp").returncode == 0
    assert manager.rota("template", "show", "hello").returncode == 2
    assert "word" in manager.rota("template", "show", "hello", "--tenant", "nlp").stdout
    job_id = submitted(manager, tmp_path, "--template", "hello", "--tenant", "nlp", "-p", "word=a;b")
    assert ended(manager, job_id)["tenant"] == "nlp"
    assert output(manager, job_id) == "a;b\n"
    manager.kill()
    manager.start()
    assert [each["name"] for each in manager.client.templates() if each["tenant"] == "nlp"] == ["hello"]
    assert manager.rota("template", "remove", "hello", "--tenant", "nlp").returncode == 0
    noted = [(each["what"], each["thing"]) for each in manager.client.audit(50) if "template" in each["what"]]
    assert noted == [("template-remove", "nlp/hello"), ("template-add", "nlp/hello")]


def test_template_of_a_sweep_starts_one(manager: Manager, tmp_path: Path) -> None:
    sweep_id = submitted(
        manager, tmp_path, "--template", "sweep", "-p", "trials=2", "-p", "steps=2", "-p", "parallel=1"
    )

    assert manager.client.sweep(sweep_id)["trials"] == 2
    manager.client.stop_sweep(sweep_id)


def test_job_from_a_template_reads_a_data_set_by_name(manager: Manager, tmp_path: Path) -> None:
    data = tmp_path / "texts"
    data.mkdir()
    (data / "part").write_text("of the data\n")
    (tmp_path / "count.yaml").write_text(
        "description: counts\n"
        "parameters: {data: {}}\n"
        "job: {name: count, data: ['{{ data }}'], run: 'cat $ROTA_DATA_MY_TEXTS/part'}\n"
    )

    assert manager.rota("data", "add", "my-texts", str(data), "--tenant", "default").returncode == 0
    assert "my-texts" in manager.rota("data", "list").stdout
    assert manager.rota("template", "add", str(tmp_path / "count.yaml")).returncode == 0
    job_id = submitted(manager, tmp_path, "--template", "count", "-p", "data=my-texts")
    unknown = manager.rota("submit", "--data", "my-text", "--", "true")

    assert ended(manager, job_id)["state"] == "succeeded", output(manager, job_id)
    assert output(manager, job_id) == "of the data\n"
    assert "tenant default has no data set 'my-text'; did you mean 'my-texts'?" in unknown.stderr
    assert manager.rota("data", "remove", "my-texts").returncode == 0
    assert manager.client.data_sets() == []
    noted = [(each["what"], each["thing"]) for each in manager.client.audit(20) if "data-set" in each["what"]]
    assert noted == [("data-set-remove", "my-texts"), ("data-set-add", "my-texts")]
