"""Helm itself, as the library that `fetch-helm` fetches, in a process of its own: `python helm.py LIBRARY VERB`.

The process reads one JSON object from its standard input and prints the answer, or the error with status 1.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

Json = dict[str, Any]
LIBRARY = "libhelm_sdkpy.so"
FETCH = Path(__file__).parent / "fetch-helm"
WITHIN_S = 120


class HelmFailed(Exception):
    """What Helm refused."""


class Helm:
    """Commands of Helm on a cluster, in one namespace."""

    def __init__(self, library: Path, kubeconfig: Path, namespace: str) -> None:
        self._library, self._kubeconfig, self._namespace = library, kubeconfig, namespace

    def install(self, release: str, chart: Path, values: Json) -> Json:
        return self._run("install", release=release, chart=str(chart), values=values)

    def upgrade(self, release: str, chart: Path, values: Json) -> Json:
        return self._run("upgrade", release=release, chart=str(chart), values=values)

    def uninstall(self, release: str) -> Json:
        return self._run("uninstall", release=release)

    def lint(self, chart: Path) -> Json:
        return self._run("lint", chart=str(chart))

    def _run(self, verb: str, **given: object) -> Json:
        question = {"kubeconfig": str(self._kubeconfig), "namespace": self._namespace, **given}
        done = subprocess.run(
            [sys.executable, __file__, str(self._library), verb],
            input=json.dumps(question),
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
        )
        if done.returncode:
            raise HelmFailed(done.stdout.strip() or done.stderr.strip()[-2000:])
        answer: Json = json.loads(done.stdout)
        return answer


def helm_library() -> Path | None:
    """Where the library is, if it is anywhere."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rota" / "helm"
    path = Path(os.environ.get("ROTA_HELM") or cache) / LIBRARY
    return path if path.is_file() else None


def main() -> None:
    """Answer one question."""
    library = ctypes.CDLL(sys.argv[1])
    library.helm_sdkpy_last_error.restype = ctypes.c_char_p
    given = json.loads(sys.stdin.read())
    handle = ctypes.c_ulonglong()
    place = [given["namespace"].encode(), given["kubeconfig"].encode(), b"", b"{}"]
    status = library.helm_sdkpy_config_create(*place, ctypes.byref(handle))
    answer = ctypes.c_char_p()
    if status == 0:
        words = _words(sys.argv[2], given)
        status = getattr(library, f"helm_sdkpy_{sys.argv[2]}")(handle, *words, ctypes.byref(answer))
    print((library.helm_sdkpy_last_error() if status else answer.value or b"{}").decode())
    sys.exit(1 if status else 0)


def _words(verb: str, given: Json) -> list[bytes | int]:
    """The arguments of a function of the library, after the handle and before the place of the answer."""
    release, chart = given.get("release", "").encode(), given.get("chart", "").encode()
    if verb == "lint":
        return [chart]
    if verb == "uninstall":
        return [release, 0, WITHIN_S]
    options = {
        "create_namespace": True,
        "wait": False,
        "timeout_seconds": WITHIN_S,
        "server_side_apply": "true",
        "disable_openapi_validation": False,
    }
    return [release, chart, json.dumps(given["values"]).encode(), b"", json.dumps(options).encode()]


if __name__ == "__main__":
    main()
