"""Virtual environments with a chosen part of what is installed here, made without a network.

The distributions that a part needs are found by their metadata, and each is linked into the new environment: what is
not needed can't be imported there, nor by any process that it starts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
SLIM = ROOT / "packages" / "rota-slim" / "pyproject.toml"


def requirements(project: Path, extras: Iterable[str] = ()) -> list[Requirement]:
    """Return what a project and some of its extras ask for."""
    about = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    wanted = [*about["dependencies"], *(line for extra in extras for line in about["optional-dependencies"][extra])]
    found = []
    for line in map(Requirement, wanted):
        if line.name == about["name"]:
            found.extend(requirements(project, sorted(line.extras)))
        else:
            found.append(line)
    return found


def closure(wanted: Iterable[Requirement]) -> dict[str, Distribution]:
    """Return these distributions and all that they need, by name."""
    found: dict[str, Distribution] = {}
    queue = [(line.name, extra) for line in wanted for extra in ("", *line.extras)]
    seen = set()
    while queue:
        name, extra = queue.pop()
        name = canonicalize_name(name)
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        found[name] = distribution(name)
        for line in map(Requirement, found[name].requires or ()):
            if line.marker is None or line.marker.evaluate({"extra": extra}):
                queue.extend((line.name, extra) for extra in ("", *line.extras))
    return found


def environment(folder: Path, extras: Iterable[str]) -> Path:
    """Make an environment in a folder with `rota-slim` and some of its extras; return its folder of programs."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    (site,) = folder.glob("lib/python3.*/site-packages")
    for each in closure(requirements(SLIM, extras)).values():
        for path in _top_level(each):
            if not (site / path.name).exists():
                (site / path.name).symlink_to(path)
    (site / "rota.pth").write_text(f"{ROOT / 'src'}\n", encoding="utf-8")
    script = folder / "bin" / "rota"
    script.write_text(f"#!{folder}/bin/python -P\nfrom rota.cli.main import run\nrun()\n", encoding="utf-8")
    script.chmod(0o755)
    return folder / "bin"


def _top_level(each: Distribution) -> Iterator[Path]:
    """Yield the files and folders of a distribution beside its metadata, and those."""
    site = Path(str(each.locate_file(""))).resolve()
    names = {file.parts[0] for file in each.files or () if file.parts[0] not in ("..", "__pycache__")}
    return (site / name for name in sorted(names))


def clean_env(programs: Path, home: Path) -> dict[str, str]:
    """Return the variables of a process that sees this environment only."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "ROTA_DATA")}
    folders = {"HOME": home, "XDG_DATA_HOME": home / "data", "XDG_STATE_HOME": home / "state"}
    return (
        kept | {name: str(path) for name, path in folders.items()} | {"PATH": f"{programs}{os.pathsep}{kept['PATH']}"}
    )
