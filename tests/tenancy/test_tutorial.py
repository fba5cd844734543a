"""The tutorial's files and commands, run as written; its output compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "tenants.md"
_BLOCK = re.compile(r"^```(\w+) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_exercises_come_out_as_printed(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for _, name, text in _BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if name:
            (tmp_path / name).write_text(text)
            continue
        printed: list[str] = []
        for line in text.splitlines():
            if line.startswith("$ "):
                told = subprocess.run(
                    line[2:], shell=True, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True
                )
                printed += [line, *told.stdout.splitlines()]
        assert printed == text.splitlines()


def test_there_are_five_exercises() -> None:
    assert len(re.findall(r"^## \d\. ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)) == 5
