"""Every notebook of the documentation runs from top to bottom, and `import rota` stays light."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from docs.pages import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    names: dict[str, Any] = {}
    cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]

    for number, cell in enumerate(cells):
        exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), names)

    assert names["result"].rows.height == 3
    assert names["study"].rows.height == 3 * 2 * 3
    assert set(names["study"].table("avg_jct_s")["policy"]) == {"fifo", "srtf", "las"}
    assert names["page"].exists()


def test_notebooks_hold_no_output() -> None:
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        assert not any(cell.get("outputs") for cell in cells), path.name


@pytest.mark.slow
def test_import_is_light_and_names_are_found() -> None:
    code = (
        "import sys, rota; heavy = {'numpy', 'polars', 'pydantic', 'plotly', 'scipy'} & set(sys.modules); "
        "assert not heavy, heavy; rota.RotaError; rota.policies.names; assert 'simulate' in dir(rota)"
    )

    subprocess.run([sys.executable, "-c", code], check=True)


def test_unknown_name_is_an_attribute_error() -> None:
    import rota

    with pytest.raises(AttributeError, match="module 'rota' has no attribute 'simulat'"):
        rota.simulat  # type: ignore[attr-defined] # noqa: B018
