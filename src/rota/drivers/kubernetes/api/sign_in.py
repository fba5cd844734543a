"""Credential plug-ins of kubeconfig files: programs that print a token and its expiry."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rota.core.errors import RotaError
from rota.drivers.kubernetes.objects.pods import seconds_of

Json = dict[str, Any]
LONGEST_S = 120.0
"""Time limit of a credential program, which may prompt its user."""
EARLY_S = 60.0
"""How long before its expiry a token is renewed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A program's credential; `until_s` is None if it does not expire."""

    token: str | None = None
    certificate: str | None = None
    key: str | None = None
    until_s: float | None = None


class SignIn:
    """The credential program of one kubeconfig user, and its cached answer."""

    def __init__(self, user: Mapping[str, Any], name: str, kubeconfig: Path) -> None:
        wanted = user["exec"]
        command = str(wanted.get("command", ""))
        beside = kubeconfig.parent / command
        self._command = [str(beside) if "/" in command else command, *map(str, wanted.get("args") or ())]
        self._env = {str(each["name"]): str(each["value"]) for each in wanted.get("env") or ()}
        self._version = str(wanted.get("apiVersion", "client.authentication.k8s.io/v1"))
        self._hint = str(wanted.get("installHint") or "").strip().partition("\n")[0]
        self._user = f"{kubeconfig}: user {name!r}"
        self._last: Credential | None = None

    def credential(self) -> Credential:
        """The current credential."""
        last = self._last
        if last is None or (last.until_s is not None and time.time() > last.until_s - EARLY_S):
            last = self._last = self._ask()
        return last

    def _ask(self) -> Credential:
        about = {"apiVersion": self._version, "kind": "ExecCredential", "spec": {"interactive": False}}
        env = {**os.environ, **self._env, "KUBERNETES_EXEC_INFO": json.dumps(about)}
        try:
            done = subprocess.run(self._command, env=env, capture_output=True, text=True, timeout=LONGEST_S)
        except FileNotFoundError:
            hint = f"; {self._hint}" if self._hint else ""
            raise RotaError(f"{self._user} signs in with {self._command[0]!r}, which is not installed{hint}") from None
        except subprocess.TimeoutExpired:
            raise RotaError(f"{self._user}: {self._command[0]!r} did not respond within {LONGEST_S:.0f} s") from None
        if done.returncode:
            message = done.stderr.strip().splitlines()[-1:] or [f"status {done.returncode}"]
            raise RotaError(f"{self._user}: {self._command[0]!r} could not sign in: {message[0]}")
        return self._read(done.stdout)

    def _read(self, text: str) -> Credential:
        try:
            status: Json = json.loads(text)["status"]
            until = status.get("expirationTimestamp")
            found = Credential(
                token=status.get("token"),
                certificate=status.get("clientCertificateData"),
                key=status.get("clientKeyData"),
                until_s=None if until is None else seconds_of(until),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            raise RotaError(f"{self._user}: the output of {self._command[0]!r} is not an ExecCredential") from None
        if found.token is None and found.certificate is None:
            raise RotaError(f"{self._user}: {self._command[0]!r} gave neither a token nor a certificate")
        return found
