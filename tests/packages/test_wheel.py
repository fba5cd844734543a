"""The wheel of everything: what it holds, and that its version is that of the code."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

import rota

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", params=[ROOT, ROOT / "packages" / "rota-slim"], ids=["rota", "rota-slim"])
def wheel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="hatchling builds the wheel")
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([*build, str(request.param)], check=True, timeout=300)
    (found,) = folder.glob("*.whl")
    return found


@pytest.mark.slow
def test_it_is_plain_python_with_every_file_of_the_source_tree(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        about = next(name for name in names if name.endswith("METADATA"))
        fields = HeaderParser().parsestr(archive.read(about).decode())
    tracked = subprocess.run(
        ["git", "ls-files", "src/rota"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()

    assert wheel.name.endswith("-py3-none-any.whl")
    assert fields["Version"] == rota.__version__
    assert {name for name in tracked if name.removeprefix("src/") not in names} == set()
    assert not [name for name in names if name.endswith((".so", ".pyc")) or name.startswith("tests/")]
    manual = {name.rpartition("/")[2] for name in names if "/share/man/man1/" in name}
    assert manual == {path.name for path in (ROOT / "man").iterdir()}
