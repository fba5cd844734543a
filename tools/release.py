"""Build what is released, check it, and try it: `python tools/release.py [--out dist] [--python PYTHON ...] [--pure]`.

Builds the source distribution, a wheel of plain Python, one with compiled modules for each Python that is named (by
default all of 3.11 to 3.13 on this machine), `rota-slim` and `rota-sdk`. Each is checked by twine, installed into an
environment of its own and tried: a simulation, a manager with a job, a script with the SDK alone; the source
distribution by building a wheel of it. Prints sizes and numbers of dependencies, and writes the notes of the version
from the changelog. Needs the development dependencies; publishes nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SDK = ROOT / "packages" / "rota-sdk"
SLIM = ROOT / "packages" / "rota-slim"
PYTHONS = ("3.11", "3.12", "3.13")
"""The versions of Python that wheels are compiled for."""
BEGIN = """
set -e
cd "$TRIED"
export HOME=$TRIED XDG_DATA_HOME=$TRIED/data XDG_STATE_HOME=$TRIED/state
rota --version
"""
SIMULATION = """
rota trace generate mixed jobs.csv --jobs 2000 --seed 1 --gpus 64 --load 1.0 >/dev/null
rota sim --trace jobs.csv --cluster gpu=64/8 --policy las >/dev/null
"""
MANAGER = """
rota up --emulate gpu=4/4 --port 0 >up.log 2>&1 &
manager=$!
trap 'kill $manager; wait $manager || true' EXIT
for _ in $(seq 100); do rota ps >/dev/null 2>&1 && break; sleep 0.2; done
rota submit --gpus 1 --wait -- sh -c 'echo trained' | grep -q trained
"""
SDK_SCRIPT = """
python -I -c "import rota.sdk; [None for _ in rota.sdk.steps(range(3))]"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A file that is released, and what installing it with some extras takes."""

    path: Path
    extras: str
    dependencies: int
    installed_mb: float
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--python", nargs="*", default=None, help="Pythons to compile for")
    parser.add_argument("--pure", action="store_true", help="build no compiled wheels")
    options = parser.parse_args()
    version = version_of(ROOT / "src" / "rota" / "__init__.py")
    notes = notes_of((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    (options.out / f"notes-{version}.md").write_text(notes, encoding="utf-8")
    run([sys.executable, "-m", "build", "--sdist", "-o", str(options.out), str(ROOT)])
    wheel(sys.executable, ROOT, options.out)
    wheel(sys.executable, SDK, options.out)
    wheel(sys.executable, SLIM, options.out)
    pythons = found_pythons() if options.python is None else options.python
    for python in () if options.pure else pythons:
        wheel(python, ROOT, options.out, ROTA_COMPILED="1")
    files = sorted(options.out.glob("*.whl")) + sorted(options.out.glob("*.tar.gz"))
    run([sys.executable, "-m", "twine", "check", "--strict", *map(str, files)])
    builds_from_source(next(path for path in files if path.suffix == ".gz"))
    table([tried(path, extras, pythons) for path in files for extras in ways_to_install(path)])
    return 0


def found_pythons() -> list[str]:
    """The Pythons of this machine that wheels are compiled for, of each version one; says which are missing."""
    found = []
    for version in PYTHONS:
        here = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
        candidates = [*sorted(map(str, here.glob(f"{version}.*/bin/python"))), shutil.which(f"python{version}") or ""]
        if f"{sys.version_info[0]}.{sys.version_info[1]}" == version:
            candidates.insert(0, sys.executable)
        works = next((each for each in candidates if each and _works(each)), None)
        if works is not None:
            found.append(works)
        else:
            print(f"note: there is no Python {version} here; no wheel is compiled for it", file=sys.stderr)
    return found


def _works(python: str) -> bool:
    """Whether a program is a Python; that of pyenv may only say where there is one."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def ways_to_install(path: Path) -> tuple[str, ...]:
    """The extras with which a file is tried."""
    if path.suffix != ".whl":
        return ()
    return ("", "sim", "server") if path.name.startswith("rota_slim") else ("",)


def smoke(path: Path, extras: str) -> str:
    """The script that tries what is installed."""
    if path.name.startswith("rota_sdk"):
        return f"set -e{SDK_SCRIPT}"
    return (
        BEGIN
        + (SIMULATION if extras != "server" else "")
        + (MANAGER if extras == "server" or "slim" not in path.name else "")
    )


def builds_from_source(path: Path) -> None:
    """Build a wheel of the source distribution, without the repository around it and without a compiler."""
    with tempfile.TemporaryDirectory(prefix="rota-source-") as folder:
        wheel(sys.executable, path, Path(folder), CC="false")


def version_of(path: Path) -> str:
    found = re.search(r'^__version__ = "([^"]+)"$', path.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None, f"{path} states no version"
    return found.group(1)


def notes_of(changelog: str, version: str) -> str:
    """The highlights of a version in the changelog, which are read in two minutes, or its section where there are none.

    What is unreleased stands for a version that has no section yet.
    """
    sections = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]
    for start in (f"[{version}]", "[Unreleased]"):
        for section in sections:
            if section.startswith(start):
                text = section.partition("\n")[2].strip()
                if highlights := re.search(r"^### Highlights\n(.*?)(?=^### |\Z)", text, re.MULTILINE | re.DOTALL):
                    text = f"{highlights.group(1).strip()}\n\nAll changes are in CHANGELOG.md, below {version}."
                return f"# Rota {version}\n\n{text}\n"
    raise SystemExit(f"the changelog has no section for {version}")


def wheel(python: str, source: Path, out: Path, **env: str) -> None:
    run([python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(out), str(source)], env)


def tried(path: Path, extras: str, pythons: Sequence[str]) -> Built:
    """Install a wheel into an environment of its own, and try it there."""
    with tempfile.TemporaryDirectory(prefix="rota-release-") as folder:
        begun, place = time.monotonic(), Path(folder, "venv")
        run([fitting(path, pythons), "-m", "venv", str(place)])
        python = str(place / "bin" / "python")
        before = len(installed(python))
        run(
            [
                python,
                "-m",
                "pip",
                "install",
                "-q",
                "-c",
                str(ROOT / "constraints.txt"),
                f"{path}[{extras}]" if extras else str(path),
            ]
        )
        seconds, packages = time.monotonic() - begun, len(installed(python)) - before - 1
        size = sum(each.stat().st_size for each in place.rglob("*") if each.is_file()) / 1e6
        env = {"PATH": f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}", "TRIED": folder}
        run(["bash", "-c", smoke(path, extras)], env)
    return Built(path=path, extras=extras, dependencies=packages, installed_mb=size, seconds=seconds)


def fitting(path: Path, pythons: Sequence[str]) -> str:
    """A Python that a wheel is for."""
    tag = re.search(r"-cp3(\d+)-", path.name)
    if tag is None:
        return sys.executable
    for python in pythons:
        said = subprocess.run([python, "-c", "import sys; print(sys.version_info[1])"], capture_output=True, text=True)
        if said.stdout.strip() == tag.group(1):
            return python
    raise SystemExit(f"no Python is named for {path.name}")


def installed(python: str) -> list[str]:
    listed = subprocess.run(
        [python, "-m", "pip", "list", "--format=freeze"], capture_output=True, text=True, check=True
    )
    return listed.stdout.split()


def table(built: Sequence[Built]) -> None:
    print("| wheel | size | dependencies | installed | time to install |\n|-|-:|-:|-:|-:|")
    for each in built:
        size = each.path.stat().st_size / 1e6
        print(
            f"| {each.path.name}{f'[{each.extras}]' if each.extras else ''} | {size:.2f} MB | {each.dependencies} "
            f"| {each.installed_mb:.0f} MB | {each.seconds:.0f} s |"
        )


def run(command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
    """Run a command; end with its output if it fails."""
    done = subprocess.run(command, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)[:200]} failed:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    raise SystemExit(main())
