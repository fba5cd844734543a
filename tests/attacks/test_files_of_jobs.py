"""Files of jobs as a way out of the job's folder, or into a colleague's: paths, links, and other users' snapshots."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attacks.lab import Lab
from managers import eventually
from rota.core.model.job import JobId
from rota.store.data.artefacts import NoArtefact, list_artefacts, opened_artefact
from rota.store.data.snapshots import Snapshots

attack = pytest.mark.attack
SECRET = "hush-of-the-manager"
JOB = JobId("7")
PIECE = st.sampled_from(["..", ".", "", "d", "inner", "up", "abs", "file", "key", "\0", "d/..", "%2e%2e"])


def folder_of_a_job(home: Path) -> Path:
    """A job's folder with every kind of link that leads to the manager's secret, in the folder above."""
    shared = home / "runs" / JOB / "shared"
    (shared / "d" / "inner").mkdir(parents=True)
    (home / "key").write_text(SECRET)
    (home / "runs" / JOB / "key").write_text(SECRET)
    (shared / "file").write_text("mine")
    (shared / "d" / "file").write_text("mine")
    (shared / "up").symlink_to("..")
    (shared / "d" / "up").symlink_to("../..")
    (shared / "abs").symlink_to(home)
    (shared / "d" / "key").symlink_to(home / "key")
    (shared / "d" / "inner" / "key").symlink_to("../../../key")
    return shared


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("home")
    folder_of_a_job(made)
    return made


@attack("asks for files by every path that could lead out", stopped_by="each part is opened below the one before it")
@given(pieces=st.lists(PIECE, min_size=1, max_size=6), begin=st.sampled_from(["", "/", "//"]))
def test_no_path_leads_out_of_the_folder(home: Path, pieces: list[str], begin: str) -> None:
    path = begin + "/".join(pieces)
    with suppress(NoArtefact), opened_artefact(home, JOB, path) as (file, about):
        assert os.read(file, 100) == b"mine"
        assert about.path in ("file", "d/file")
    with suppress(NoArtefact):
        assert {each.path for each in list_artefacts(home, JOB, path).files} <= {"file", "d/file"}


@attack("puts a link to the manager's files where a result is expected", stopped_by="links are not followed")
@attack("puts a pipe or a device where a result is expected", stopped_by="only regular files are read")
def test_links_pipes_and_devices_are_neither_listed_nor_read(tmp_path: Path) -> None:
    shared = folder_of_a_job(tmp_path)
    os.mkfifo(shared / "pipe")
    found = list_artefacts(tmp_path, JOB)

    assert [each.path for each in found.files] == ["d/file", "file"]
    assert found.left_out == 6
    for path in ("up/key", "abs/key", "d/key", "d/inner/key", "d/up/key", "pipe", "d", ""):
        with pytest.raises(NoArtefact), opened_artefact(tmp_path, JOB, path):
            pass


@attack("replaces its whole folder by a link to another's", stopped_by="the folder itself is not followed either")
def test_folder_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    shared = folder_of_a_job(tmp_path)
    shared.rename(tmp_path / "elsewhere")
    shared.symlink_to(tmp_path)

    with pytest.raises(NoArtefact):
        list_artefacts(tmp_path, JOB, "runs")
    with pytest.raises(NoArtefact), opened_artefact(tmp_path, JOB, "key"):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who can own files of others")
@attack("hard-links another user's file into its folder", stopped_by="only files of the job's user may have two names")
def test_hard_link_to_a_file_of_another_user_is_not_read(tmp_path: Path) -> None:
    shared = folder_of_a_job(tmp_path)
    os.chown(shared, 12345, 12345)
    os.link(tmp_path / "key", shared / "stolen")
    (shared / "own").write_text("mine")
    os.chown(shared / "own", 12345, 12345)
    os.link(shared / "own", shared / "twice")

    assert [each.path for each in list_artefacts(tmp_path, JOB).files] == ["d/file", "file", "own", "twice"]
    with pytest.raises(NoArtefact), opened_artefact(tmp_path, JOB, "stolen"):
        pass


@attack("makes a listing endless, by folders or by files", stopped_by="a listing has bounds and says that it is cut")
def test_listing_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.store.data.artefacts.MOST_LISTED", 50)
    shared = folder_of_a_job(tmp_path)
    deep = shared
    for _ in range(70):
        deep = deep / "n"
        deep.mkdir()
    for number in range(100):
        (shared / f"f{number}").touch()

    found = list_artefacts(tmp_path, JOB)

    assert len(found.files) == 50
    assert found.is_cut


@attack("reads a colleague's results", stopped_by="files need the right to change the job")
def test_files_are_for_the_owner_and_maintainers(lab: Lab) -> None:
    job_id = lab.submit("ada", "echo mine > $ROTA_RUN_DIR/result.txt")
    eventually(lambda: lab.job(job_id)["state"] == "succeeded")

    for name, status in (("ada", 200), ("mia", 200), ("admin", 200), ("bob", 403), ("vic", 403), ("eve", 404)):
        assert lab.ask(name, "GET", f"/jobs/{job_id}/files")[0] == status, name
    for name in ("bob", "vic", "eve"):
        assert lab.ask(name, "GET", f"/jobs/{job_id}/files/result.txt")[0] in (403, 404), name
    assert lab.rota("mia", "get", job_id, "result.txt")[0] == 0
    noted = [(each["who"], each["thing"], each["detail"]) for each in lab.ask("admin", "GET", "/audit?what=get")[1]]
    assert noted == [("mia", job_id, "result.txt")]


@attack("asks over HTTP for paths that lead out", stopped_by="each part is opened below the one before it")
def test_paths_over_http_do_not_lead_out(lab: Lab) -> None:
    job_id = lab.submit("ada", f"ln -s {lab.manager.home} $ROTA_RUN_DIR/out; echo x > $ROTA_RUN_DIR/x")
    eventually(lambda: lab.job(job_id)["state"] == "succeeded")

    for path in ("../../../rota.db", "out/rota.db", "/etc/passwd", "..", "x/../../..", "\0", "a" * 5000):
        for sent in (quote(path, safe=""), quote(path, safe="/"), quote(quote(path, safe=""), safe="")):
            status, answer = lab.ask("ada", "GET", f"/jobs/{job_id}/files/{sent}")
            assert status in (404, 422), (path, answer)
            assert lab.ask("ada", "GET", f"/jobs/{job_id}/files?path={sent}")[0] in (404, 422), path


@attack("runs the code of another tenant by its digest", stopped_by="snapshots belong to the tenant that sent them")
@attack("spoils a colleague's upload by parts of its own", stopped_by="what a sender sends is kept apart until whole")
def test_snapshots_stay_in_their_tenant(lab: Lab) -> None:
    kept = Snapshots(lab.manager.home)
    digest = "ab" * 32
    path = kept.path("nlp", digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    asked = {"run": "true", "snapshot": {"digest": digest}}

    assert lab.ask("ada", "POST", "/jobs", {**asked, "tenant": "nlp"})[0] == 201
    status, answer = lab.ask("eve", "POST", "/jobs", {**asked, "tenant": "vision"})
    assert (status, answer["error"].split(";")[0]) == (
        422,
        "job: snapshot: tenant vision has no snapshot abababababab",
    )
    assert lab.ask("eve", "GET", f"/snapshots/{digest}?size=1&tenant=nlp")[0] == 403
    assert lab.ask("vic", "PUT", f"/snapshots/{digest}?size=1&tenant=nlp", {})[0] == 403
    assert kept.receive("nlp", "cd" * 32, "ada", 0, b"1", 2) == 1
    assert kept.received("nlp", "cd" * 32, "bob", 2) == 0


def test_unnamed_snapshots_go_after_a_day_and_named_ones_stay(tmp_path: Path) -> None:
    kept = Snapshots(tmp_path)
    for digest, age_s in (("11" * 32, 2 * 86400), ("22" * 32, 2 * 86400), ("33" * 32, 60)):
        path = kept.path("nlp", digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (path.stat().st_mtime - age_s,) * 2)

    assert kept.tidy({"11" * 32}) == ["22" * 32]
    assert [kept.has("nlp", each * 32) for each in ("11", "22", "33")] == [True, False, True]


@attack("changes the templates that colleagues submit", stopped_by="templates are changed by maintainers")
@attack("reads or changes templates of another tenant", stopped_by="the token's tenants bound what it reads")
def test_templates_are_changed_by_maintainers_of_their_tenant(lab: Lab) -> None:
    file = {"description": "x", "parameters": {"w": {}}, "job": {"run": "echo {{ w }}"}}

    for name, status in (("ada", 403), ("vic", 403), ("eve", 403), ("mia", 200)):
        assert lab.ask(name, "PUT", "/templates/own?tenant=nlp", file)[0] == status, name
    for name, status in (("eve", 403), ("ada", 200)):
        assert lab.ask(name, "POST", "/templates/own/fill?tenant=nlp", {"parameters": {"w": "a"}})[0] == status, name
    assert "own" not in str(lab.ask("eve", "GET", "/templates")[1])
    for name, status in (("ada", 403), ("eve", 403), ("mia", 200)):
        assert lab.ask(name, "DELETE", "/templates/own?tenant=nlp")[0] == status, name
