"""Packing code: the same files give the same digest, Git decides what is code, and nothing outside is taken."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from rota.core.errors import RotaError
from rota.sdk import snapshot
from rota.sdk.snapshot import PackedCode, pack


def packed(folder: Path) -> PackedCode:
    """What was packed; its archive is closed."""
    with pack(folder) as found:
        return found


def names(folder: Path) -> list[str]:
    with pack(folder) as found, tarfile.open(fileobj=found.archive) as tar:
        return tar.getnames()


def git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    (folder / "lib").mkdir(parents=True)
    (folder / "train.py").write_text("print('hello')\n")
    (folder / "lib" / "model.py").write_text("x = 1\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o700)
    (folder / "latest").symlink_to("lib/model.py")
    return folder


def test_same_files_have_the_same_digest_whenever_and_wherever_they_lie(code: Path, tmp_path: Path) -> None:
    first = packed(code)
    other = code.rename(tmp_path / "elsewhere")
    for path in other.rglob("*"):
        if not path.is_symlink():
            os.utime(path, (1, 1))

    assert packed(other).digest == first.digest
    (other / "lib" / "model.py").write_text("x = 2\n")
    assert packed(other).digest != first.digest


def test_programs_and_links_stay_what_they_are(code: Path) -> None:
    with pack(code) as found, tarfile.open(fileobj=found.archive) as tar:
        modes = {entry.name: (entry.type, entry.mode) for entry in tar}

    assert modes["run.sh"] == (tarfile.REGTYPE, 0o755)
    assert modes["train.py"] == (tarfile.REGTYPE, 0o644)
    assert modes["latest"][0] == tarfile.SYMTYPE


def test_what_tools_leave_behind_and_what_is_named_is_no_code(code: Path) -> None:
    for name in ("__pycache__/a.pyc", ".venv/bin/python", "out/model.bin", "lib/cache/x", "notes.tmp"):
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text("")
    (code / ".rotaignore").write_text("# results\nout/\nlib/cache\n*.tmp\n")

    assert names(code) == [".rotaignore", "latest", "lib/model.py", "run.sh", "train.py"]


def test_git_says_what_is_code_and_where_it_comes_from(code: Path) -> None:
    git(code, "init", "-b", "trunk")
    git(code, "remote", "add", "origin", "https://ada:key@git.example/code.git")
    (code / ".gitignore").write_text("data/\n")
    git(code, "add", ".")
    git(code, "commit", "-m", "first")
    (code / "data").mkdir()
    (code / "data" / "large.bin").write_text("x")
    clean = packed(code)
    (code / "new.py").write_text("y = 1\n")
    (code / "run.sh").unlink()

    changed = packed(code)

    commit = git(code, "rev-parse", "HEAD")
    origin = {"commit": commit, "branch": "trunk", "remote": "https://git.example/code.git"}
    assert clean.origin == {**origin, "dirty": False}
    assert changed.origin == {**origin, "dirty": True}
    assert names(code) == [".gitignore", "latest", "lib/model.py", "new.py", "train.py"]


def test_a_folder_inside_of_a_work_tree_is_packed_alone(code: Path) -> None:
    git(code, "init")
    git(code, "add", ".")

    assert names(code / "lib") == ["model.py"]


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "lib/../../outside"])
def test_link_that_leads_out_is_refused_by_name(code: Path, target: str) -> None:
    (code / "lost").symlink_to(target)

    with pytest.raises(RotaError, match=r"--snapshot: lost is a link to .*, outside of "):
        packed(code)


def test_too_much_is_refused_with_the_way_out(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "MOST_BYTES", 1000)
    (code / "data.bin").write_bytes(os.urandom(50_000))

    with pytest.raises(RotaError, match=r"packs to more than 0 MiB at data.bin; name what is no code in"):
        packed(code)
    monkeypatch.setattr(snapshot, "MOST_FILES", 3)
    with pytest.raises(RotaError, match=r"has 5 files, more than 3"):
        packed(code)


def test_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RotaError, match="has no files to pack"):
        packed(tmp_path)
    with pytest.raises(RotaError, match="is not a folder"):
        packed(tmp_path / "none")
