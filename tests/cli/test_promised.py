"""Promises that can't be kept are refused where they are made: by `rota up`, `rota sim` and `rota check` alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.cli.main import status

NODES = 'nodes: [{name: "b[1-4]", type: v100, gpus: 8}]\n'
KEPT = NODES + "tenants: {nlp: {gpus: 16}, vision: {gpus: {v100: 16}}}\n"
BROKEN = NODES + "tenants: {nlp: {gpus: 24}, vision: {gpus: {v100: 16}}}\n"
WHAT = "tenants: the shares of nlp, vision add up to 40 devices; the cluster has 32"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept.yaml").write_text(KEPT, encoding="utf-8")
    (tmp_path / "broken.yaml").write_text(BROKEN, encoding="utf-8")
    (tmp_path / "rota.yaml").write_text("emulate: broken.yaml\ntenancy: quota\n", encoding="utf-8")
    assert status(["trace", "generate", "mixed", "jobs.csv", "--jobs", "5", "--gpus", "32"]) == 0
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "where"),
    [
        ("sim --trace jobs.csv --policy fifo --tenancy quota --cluster broken.yaml", "broken.yaml"),
        (
            "sim --trace jobs.csv --policy fifo --tenancy quota --cluster kept.yaml --change 1h=broken.yaml",
            "the change at 3600 s: broken.yaml",
        ),
        ("up --data home --tenancy quota --emulate broken.yaml", "broken.yaml"),
        ("check rota.yaml", "rota.yaml: {folder}/broken.yaml"),
    ],
)
def test_shares_beyond_the_cluster_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str, where: str
) -> None:
    capsys.readouterr()

    assert status(command.split()) == 2

    told = capsys.readouterr()
    assert (told.out, told.err) == ("", f"error: {where.format(folder=folder)}: {WHAT}\n")
    assert not (folder / "home").exists()


def test_a_tenancy_that_keeps_no_shares_does_not_ask(folder: Path) -> None:
    assert status(["sim", "--trace", "jobs.csv", "--policy", "fifo", "--cluster", "broken.yaml", "-o", "json"]) == 0
