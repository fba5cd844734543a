"""The `job_submit.lua` that holds jobs for Rota."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from rota.core.errors import RotaError

_NAME = re.compile(r"[A-Za-z0-9_.*()-]+")


def submit_script(partitions: Sequence[str]) -> str:
    """Return the script for these partitions; `*` stands for all of them."""
    for name in partitions:
        if not _NAME.fullmatch(name):
            raise RotaError(f"--partition is {name!r}; it must be the name of a partition, or '*'")
    text = Path(__file__).with_name("job_submit.lua").read_text(encoding="utf-8")
    return text.replace('"@PARTITIONS@"', ", ".join(f'"{name}"' for name in partitions))
