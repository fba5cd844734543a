"""The distribution for training environments: complete without anything else, on the oldest Python that it promises."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from managers import Manager

ROOT = Path(__file__).resolve().parents[2]
OLDEST = (3, 9)
NEEDS_TORCH = {"ddp"}
MODULES = {path.stem for path in (ROOT / "src/rota/sdk").glob("*.py")} - {"__init__"} - NEEDS_TORCH
LEAST_IMPORT = """
import sys, time
begun = time.process_time()
import rota.sdk
rota.sdk.steps
print(time.process_time() - begun, sorted(name for name in sys.modules if name.split(".")[0] in ("numpy", "pydantic")))
"""
JOB = """
import rota.sdk
for step in (run := rota.sdk.steps(range(3))):
    run.report(loss=1.0 / (step + 1))
print("steps", run.step)
"""
SNAPSHOT = """
import sys
from pathlib import Path
from rota.sdk import Client
from rota.sdk.snapshot import pack

client = Client(sys.argv[1])
with pack(Path("code")) as packed:
    client.send_snapshot(packed)
    job = {"run": [sys.executable, "-S", "job.py"], "snapshot": packed.described(), "env": {"PYTHONPATH": sys.argv[2]}}
print(client.submit({**job, "resources": {"gpus": 1}})[0])
"""
FETCH = """
import sys
from pathlib import Path
from rota.sdk import Client

client = Client(sys.argv[1])
client.get_file(sys.argv[2], "code/job.py", Path("fetched.py"))
print(Path("fetched.py").read_text() == Path("code/job.py").read_text())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="hatchling builds the wheel")
    folder = tmp_path_factory.mktemp("wheel")
    source = [str(ROOT / "packages" / "rota-sdk")]
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([*build, *source], check=True, timeout=120)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel installs."""
    folder = tmp_path_factory.mktemp("site")
    zipfile.ZipFile(wheel).extractall(folder)
    folder.chmod(0o755)
    return folder


def oldest_python() -> str:
    """The oldest Python here that the distribution promises to run on."""
    roots = [Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"]
    found = [path for root in roots if root.is_dir() for path in sorted(root.glob("3.9.*/bin/python3.9"))]
    path = shutil.which("python3.9") or next(map(str, found), None)
    if path is not None and subprocess.run([path, "-c", ""], check=False, capture_output=True).returncode == 0:
        return path
    return sys.executable


def run(python: str, installed: Path, *args: str, folder: Path | None = None, **env: str) -> str:
    """Run a Python that sees nothing but the wheel's files and the standard library."""
    command = [python, "-S", *args]
    env = {"PYTHONPATH": str(installed), "PATH": os.environ["PATH"], **({"HOME": str(folder)} if folder else {}), **env}
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_depends_on_nothing_and_holds_only_what_a_script_needs(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        about = next(name for name in names if name.endswith("METADATA"))
        fields = HeaderParser().parsestr(archive.read(about).decode())
    rooms = {name.split("/")[1] for name in names if name.startswith("rota/")}

    assert fields.get_all("Requires-Dist") is None
    assert fields["Requires-Python"] == ">=3.9"
    assert rooms == {"__init__.py", "py.typed", "core", "sdk"}
    assert {name for name in names if name.startswith("rota/core/")} == {"rota/core/__init__.py", "rota/core/errors.py"}
    assert wheel.stat().st_size < 100_000


def test_every_module_imports_on_the_oldest_python(installed: Path) -> None:
    imports = "; ".join(f"import rota.sdk.{name}" for name in sorted(MODULES))

    said = run(oldest_python(), installed, "-c", f"{imports}; import sys; print(sys.version_info[:2] >= {OLDEST})")

    assert said.strip() == "True"


def test_import_takes_less_than_thirty_milliseconds_and_nothing_heavy(installed: Path) -> None:
    times = []
    for _ in range(5):
        taken, heavy = run(sys.executable, installed, "-c", LEAST_IMPORT).split(" ", 1)
        times.append(float(taken))
        assert heavy.strip() == "[]"

    assert min(times) < 0.03


@pytest.mark.slow
def test_scripts_with_the_sdk_alone_submit_jobs_pack_code_and_fetch_files(installed: Path, tmp_path: Path) -> None:
    python = oldest_python()
    (tmp_path / "job.py").write_text(JOB)
    manager = Manager(tmp_path).start()
    try:
        job = {
            "run": [python, "-S", str(tmp_path / "job.py")],
            "env": {"PYTHONPATH": str(installed)},
            "resources": {"gpus": 1},
            "workdir": str(tmp_path),
        }
        submit = f"from rota.sdk import Client; print(Client({manager.client.url!r}).submit({job!r})[0])"
        job_id = run(python, installed, "-c", submit, HOME=str(tmp_path)).strip()

        assert manager.wait(job_id)["state"] == "succeeded"
        assert "steps 3" in manager.said(job_id)

        (tmp_path / "code").mkdir()
        (tmp_path / "job.py").rename(tmp_path / "code" / "job.py")
        for name, text in (("snapshot.py", SNAPSHOT), ("fetch.py", FETCH)):
            (tmp_path / name).write_text(text)
        url = manager.client.url
        packed = run(python, installed, "snapshot.py", url, str(installed), folder=tmp_path).strip()

        assert manager.wait(packed)["state"] == "succeeded"
        assert run(python, installed, "fetch.py", url, packed, folder=tmp_path).strip() == "True"
    finally:
        manager.clean_up()
