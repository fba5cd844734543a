"""Which variables of the submitting shell a job gets."""

from __future__ import annotations

import pytest

from rota.core.errors import RotaError
from rota.sdk.shell_env import shell_variables

SHELL = {
    "PATH": "/opt/conda/bin:/usr/bin",
    "CONDA_PREFIX": "/opt/conda",
    "VIRTUAL_ENV": "/home/ada/env",
    "LC_TIME": "de_DE.UTF-8",
    "LANG": "en_GB.UTF-8",
    "HOME": "/home/ada",
    "ROTA_TOKEN": "rota_secret",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "BASH_FUNC_module%%": "() { :; }",
    "EMPTY": "",
    "BROKEN": "\udcff",
}


@pytest.mark.parametrize(
    ("wanted", "url", "names"),
    [
        ("default", "http://127.0.0.1:7650", ["CONDA_PREFIX", "LANG", "LC_TIME", "PATH", "VIRTUAL_ENV"]),
        ("default", "https://gpu.example:7650", []),
        ("none", "http://127.0.0.1:7650", []),
        ("all", "http://h", ["AWS_SECRET_ACCESS_KEY", "CONDA_PREFIX", "LANG", "LC_TIME", "PATH", "VIRTUAL_ENV"]),
        ("HOME, LC_*", "https://gpu.example", ["HOME", "LC_TIME"]),
    ],
    ids=["default", "default to another machine", "none", "all", "named"],
)
def test_job_gets_what_was_asked_for_and_no_token(wanted: str, url: str, names: list[str]) -> None:
    assert sorted(shell_variables(wanted, SHELL, url=url)) == names


def test_names_that_are_none_are_refused() -> None:
    with pytest.raises(RotaError, match=r"--env-from-shell is 'PA TH'; write all, none, or names such as PATH,CUDA_\*"):
        shell_variables("PA TH", SHELL)
