"""The variables of the submitting shell that a job gets: a fixed set, all, none, or those that are named.

A job never gets the manager's own variables. Without these, its tasks have what a login gives their user.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from rota.core.errors import RotaError

DEFAULT = "default"
PASSED = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_*", "LANG", "LANGUAGE", "LC_*", "TZ")
"""What is passed on by default, to a manager on this machine; `*` stands for any rest of a name."""
KEPT_BACK = ("ROTA_*", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "PWD", "OLDPWD", "SHLVL", "_", "XDG_RUNTIME_DIR")
"""What is passed on only by name: it is the shell's own, the task's, or a secret of Rota."""
OWN = ("ROTA_*",)
"""Never passed on, not even by name: a token would be readable for all users of the tenant."""
MOST = 900
"""A job file has at most 1,000 variables, and these are not the only ones."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_NEAR = frozenset({"127.0.0.1", "localhost", "::1"})


def shell_variables(wanted: str, environ: Mapping[str, str] | None = None, *, url: str = "") -> dict[str, str]:
    """Return the variables to pass on. `wanted` is `default`, `all`, `none` or names such as `PATH,CUDA_*`.

    The default set goes to a manager on this machine only: elsewhere, a PATH means something else.
    """
    given = os.environ if environ is None else environ
    if wanted == "none" or (wanted == DEFAULT and url and urlsplit(url).hostname not in _NEAR):
        return {}
    if wanted == "all":
        return _passable({name: value for name, value in given.items() if not _matches(name, KEPT_BACK)})
    patterns = PASSED if wanted == DEFAULT else tuple(part.strip() for part in wanted.split(","))
    for pattern in patterns:
        if not _NAME.fullmatch(pattern.removesuffix("*")):
            raise RotaError(f"--env-from-shell is {wanted!r}; write all, none, or names such as PATH,CUDA_*")
    return _passable(
        {name: value for name, value in given.items() if _matches(name, patterns) and not _matches(name, OWN)}
    )


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(name.startswith(each[:-1]) if each.endswith("*") else name == each for each in patterns)


def _passable(variables: dict[str, str]) -> dict[str, str]:
    """The variables that a job file can hold: those with a proper name and a value that is text and not empty."""
    found = {name: value for name, value in variables.items() if _NAME.fullmatch(name) and value and _is_text(value)}
    if len(found) > MOST:
        raise RotaError(f"the shell has {len(found)} variables to pass on; at most {MOST} can be: name those it needs")
    return found


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
