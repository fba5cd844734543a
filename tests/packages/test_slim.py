"""`rota-slim`: a simulator without a server, a server without what simulations need; the rest says what is missing."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest

from packages.environments import ROOT, SLIM, clean_env, closure, environment, requirements

WEB = ("fastapi", "nicegui", "starlette", "sqlalchemy", "uvicorn")
STUDIES = ("highspy", "plotly", "polars", "scipy")


def rota(programs: Path, folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(programs / "rota"), *args],
        cwd=folder,
        env=clean_env(programs, folder),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def absent(programs: Path, modules: tuple[str, ...]) -> bool:
    code = f"from importlib.util import find_spec; print(not any(map(find_spec, {modules!r})))"
    env = clean_env(programs, programs)
    return subprocess.check_output([str(programs / "python"), "-c", code], env=env, text=True).strip() == "True"


def test_rota_is_slim_with_both_parts_and_no_version_differs() -> None:
    """One list of dependencies in two files: they can't drift apart."""
    everything = {str(line) for line in requirements(ROOT / "pyproject.toml")}

    assert everything == {str(line) for line in requirements(SLIM, ("sim", "server"))}

    extras = {
        path: tomllib.loads(path.read_text())["project"]["optional-dependencies"]
        for path in (SLIM, ROOT / "pyproject.toml")
    }
    for name in ("estimate", "figures", "kubernetes", "oidc", "learn", "postgresql"):
        assert extras[SLIM][name][1:] == extras[ROOT / "pyproject.toml"][name]


def test_parts_are_small() -> None:
    sizes = {extras: len(closure(requirements(SLIM, extras))) for extras in ((), ("sim",), ("server",))}

    assert sizes[()] <= 15
    assert sizes[("sim",)] <= 25
    assert not set(closure(requirements(SLIM, ("sim",)))) & set(WEB)
    assert not set(closure(requirements(SLIM, ("server",)))) & set(STUDIES)


@pytest.mark.slow
def test_simulator_without_a_server(tmp_path: Path) -> None:
    programs = environment(tmp_path / "venv", ("sim",))

    assert absent(programs, WEB)
    assert rota(programs, tmp_path, "trace", "generate", "mixed", "jobs.parquet", "--jobs", "20").returncode == 0
    study = (
        "--trace",
        "jobs.parquet",
        "--cluster",
        "gpu=32/8",
        "--policy",
        "las",
        "--policy",
        "gavel/max_min_fairness",
    )
    assert rota(programs, tmp_path, "sim", *study, "--out", "study").returncode == 0
    assert (tmp_path / "study" / "report.html").stat().st_size > 100_000
    for command in (("up", "--emulate", "gpu=4/4"), ("demo", "--short")):
        refused = rota(programs, tmp_path, *command)
        assert refused.returncode == 2
        assert refused.stderr.count("\n") == 1
        assert "which is not installed; pip install 'rota-slim[server]', or rota for all" in refused.stderr


@pytest.mark.slow
def test_simulator_with_nothing_but_the_base_names_what_a_report_needs(tmp_path: Path) -> None:
    programs = environment(tmp_path / "venv", ())

    assert rota(programs, tmp_path, "trace", "generate", "mixed", "jobs.csv", "--jobs", "20").returncode == 0
    study = ("sim", "--trace", "jobs.csv", "--cluster", "gpu=32/8", "--policy", "las")
    assert rota(programs, tmp_path, *study).returncode == 0
    refused = rota(programs, tmp_path, *study, "--out", "study")

    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1].startswith("error: this needs polars, which is not installed; pip install")


@pytest.mark.slow
def test_server_without_what_simulations_need(tmp_path: Path) -> None:
    programs = environment(tmp_path / "venv", ("server",))

    assert absent(programs, STUDIES)
    shown = rota(programs, tmp_path, "demo", "--short", "--out", str(tmp_path / "demo"))

    assert shown.returncode == 0, shown.stderr
    assert "starts at step" in shown.stdout
    assert "page:    not drawn; pip install 'rota-slim[sim]'" in shown.stdout
