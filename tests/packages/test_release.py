"""What the release script relies on: notes in the changelog, and a source distribution that builds anywhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from release import PYTHONS, ROOT, found_pythons, notes_of, smoke, version_of, ways_to_install

from rota import __version__


def test_the_changelog_has_a_dated_section_for_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")

    assert re.search(rf"^## \[{re.escape(__version__)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE)
    assert version_of(ROOT / "src/rota/__init__.py") == __version__
    assert notes_of(changelog, __version__).startswith(f"# Rota {__version__}\n\n")


def test_notes_are_those_of_the_version_or_of_what_is_unreleased() -> None:
    changelog = "# Changelog\n\n## [Unreleased]\n\n- new\n\n## [0.2.0] - 2030-01-01\n\n- old\n"

    assert notes_of(changelog, "0.2.0") == "# Rota 0.2.0\n\n- old\n"
    assert notes_of(changelog, "0.3.0") == "# Rota 0.3.0\n\n- new\n"


def test_notes_are_the_highlights_where_there_are_any() -> None:
    changelog = "## [0.2.0] - 2030-01-01\n\nText.\n\n### Highlights\n\n- one\n\n### Added\n\n- more\n"

    assert notes_of(changelog, "0.2.0") == "# Rota 0.2.0\n\n- one\n\nAll changes are in CHANGELOG.md, below 0.2.0.\n"


def test_notes_of_this_version_are_read_in_two_minutes() -> None:
    assert len(notes_of((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), __version__).split()) < 450


def test_each_way_to_install_is_tried_by_what_it_is_for() -> None:
    slim, sdk, whole = Path("rota_slim-1.whl"), Path("rota_sdk-1.whl"), Path("rota-1.whl")

    assert ways_to_install(slim) == ("", "sim", "server")
    assert ways_to_install(Path("rota-1.tar.gz")) == ()
    assert "rota sim" in smoke(slim, "sim")
    assert "rota up" not in smoke(slim, "sim")
    assert "rota sim" not in smoke(slim, "server")
    assert "rota submit" in smoke(slim, "server")
    assert "rota.sdk" in smoke(sdk, "")
    assert all(part in smoke(whole, "") for part in ("rota sim", "rota up", "rota submit"))


def test_pythons_are_found_once_per_version() -> None:
    found = found_pythons()

    asked = "import sys; print('%d.%d' % sys.version_info[:2])"
    versions = [subprocess.check_output([python, "-c", asked], text=True).strip() for python in found]
    assert sys.executable in found
    assert versions == [version for version in PYTHONS if version in versions]


@pytest.mark.slow
def test_the_source_distribution_builds_without_a_compiler_and_the_repository(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="hatchling builds the distributions")
    made = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(made, cwd=ROOT, check=True, timeout=300, capture_output=True)
    (source,) = tmp_path.glob("*.tar.gz")

    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    subprocess.run([*build, str(source)], check=True, timeout=300, cwd=tmp_path, env=os.environ | {"CC": "false"})

    assert [path.name for path in tmp_path.glob("*.whl")] == [f"rota-{__version__}-py3-none-any.whl"]
