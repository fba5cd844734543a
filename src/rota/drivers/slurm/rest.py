"""slurmrestd as a reader: the same records as those of the commands, over HTTP or a Unix socket."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import os
import re
import socket
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rota.core.errors import RotaError
from rota.drivers.slurm.commands import WITHIN_S, SlurmAway, SlurmRefused
from rota.drivers.slurm.printed.accounts import Association
from rota.drivers.slurm.printed.fields import BadField, number, text, words
from rota.drivers.slurm.printed.records import (
    QueueReader,
    SlurmJob,
    SlurmNode,
    SlurmReading,
    SlurmUnreadable,
    read_nodes,
)
from rota.drivers.slurm.printed.reservations import SlurmReservation, read_rest_reservations
from rota.drivers.slurm.slurm_settings import SlurmSettings

Json = dict[str, Any]
_JOBS = re.compile(r"/slurm/(v[0-9.]+)/jobs/?")


class SlurmRest:
    """Reads from slurmrestd at `unix:/path` or `http://host:port`.

    A token comes from a file, which is read for each request because tokens end after half an hour, or from SLURM_JWT.
    """

    def __init__(self, address: str, token_file: Path | None = None, *, within_s: float = WITHIN_S) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("unix", "http", "https") or not (
            parts.path if parts.scheme == "unix" else parts.netloc
        ):
            raise RotaError(f"--rest is {address!r}; give unix:/path/of/the/socket, or http://host:port")
        self._parts = parts
        self._token_file = token_file
        self._within_s = within_s
        self._version: str | None = None
        self._queue = QueueReader()
        self._settings = SlurmSettings()
        self.queries = 0

    async def jobs(self) -> SlurmReading[SlurmJob]:
        """All jobs that slurmctld knows."""
        output = await self._ask("slurm", "jobs")
        return await asyncio.to_thread(self._queue.read, output)

    async def nodes(self) -> SlurmReading[SlurmNode]:
        """All nodes."""
        return read_nodes(await self._ask("slurm", "nodes"))

    async def associations(self) -> SlurmReading[Association]:
        """All accounts of this cluster and their users; none where Slurm keeps no accounts."""
        try:
            output = await self._ask("slurmdb", "associations")
        except SlurmRefused:
            return SlurmReading()
        return read_rest_associations(output, self._settings.name or None)

    async def reservations(self) -> SlurmReading[SlurmReservation]:
        """All reservations, those to come included."""
        return read_rest_reservations(await self._ask("slurm", "reservations"))

    def use(self, settings: SlurmSettings) -> None:
        """Read jobs and accounts as a cluster with these settings counts them."""
        if settings != self._settings:
            self._settings, self._queue = settings, QueueReader()
            self._queue.adjust = settings.adjust

    async def _ask(self, part: str, what: str) -> bytes:
        return await asyncio.to_thread(self._get, part, what)

    def _get(self, part: str, what: str) -> bytes:
        if self._version is None:
            self._version = newest_version(self._fetch("/openapi/v3"))
        self.queries += 1
        return self._fetch(f"/{part}/{self._version}/{what}")

    def _fetch(self, path: str) -> bytes:
        headers = {"Accept": "application/json"}
        if token := self._token():
            headers |= {"X-SLURM-USER-TOKEN": token}
        claims = claims_of(token)
        if isinstance(ends_s := claims.get("exp"), int | float) and ends_s < time.time():
            raise SlurmRefused("the token for slurmrestd has ended; renew it with `scontrol token`")
        if name := os.environ.get("SLURM_USER_NAME") or _name_in(claims):
            headers |= {"X-SLURM-USER-NAME": name}
        connection = self._connection()
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise SlurmAway(f"slurmrestd does not answer: {error or type(error).__name__}") from error
        finally:
            connection.close()
        if answer.status in (500, 502, 503, 504):
            why = "can't reach Slurm, or Slurm does not take the token" if token else "can't reach Slurm"
            raise SlurmAway(f"slurmrestd {why}: {_said(content)}")
        if answer.status == 401:
            raise SlurmRefused(f"slurmrestd wants a valid token, in SLURM_JWT or --rest-token: {_said(content)}")
        if answer.status != 200:
            raise SlurmRefused(f"slurmrestd answers {answer.status} to {path}: {_said(content)}")
        return content

    def _token(self) -> str:
        """The token, bare or as `scontrol token` prints it."""
        if self._token_file is None:
            return os.environ.get("SLURM_JWT", "")
        try:
            return self._token_file.read_text().strip().removeprefix("SLURM_JWT=")
        except (OSError, UnicodeDecodeError) as error:
            raise SlurmRefused(f"the token for slurmrestd can't be read from {self._token_file}: {error}") from error

    def _connection(self) -> http.client.HTTPConnection:
        if self._parts.scheme == "unix":
            return _UnixConnection(self._parts.path, self._within_s)
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        return kind(self._parts.netloc, timeout=self._within_s)


def claims_of(token: str) -> Json:
    """What a token of Slurm's says of itself, without a look at its signature; nothing where it can't be read."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _name_in(claims: Json) -> str:
    """The user that a token is for: slurmrestd wants its name, too."""
    found = claims.get("sun")
    return found if isinstance(found, str) and found.isprintable() and found.isascii() else ""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, within_s: float) -> None:
        super().__init__("localhost", timeout=within_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def newest_version(described: bytes) -> str:
    """The newest version of slurmrestd's interface that lists jobs, by its description of itself."""
    try:
        paths = list(json.loads(described)["paths"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SlurmUnreadable("slurmrestd does not describe its interface; is it slurmrestd?") from error
    found = [match[1] for path in paths if isinstance(path, str) and (match := _JOBS.fullmatch(path))]
    if not found:
        raise SlurmUnreadable("slurmrestd has no list of jobs; load its openapi plugin")
    return max(found, key=lambda version: [int(each) for each in re.findall(r"\d+", version)])


def read_rest_associations(output: bytes, cluster: str | None = None) -> SlurmReading[Association]:
    """Read slurmdb's associations; those of other clusters are left out."""
    try:
        records = json.loads(output)["associations"]
        assert isinstance(records, list)
    except (ValueError, KeyError, TypeError, RecursionError, AssertionError) as error:
        raise SlurmUnreadable("slurmrestd's answer has no list of associations") from error
    reading: SlurmReading[Association] = SlurmReading()
    for record in records:
        try:
            if cluster is None or text(record.get("cluster")) in ("", cluster):
                reading.found.append(_association(record))
        except (BadField, KeyError, TypeError, AttributeError) as error:
            reading.faults.append(f"association {str(record)[:60]}: {error}")
    return reading


def _association(value: Json) -> Association:
    account = text(value["account"])
    if not account:
        raise BadField("no account")
    limits = ((value.get("max") or {}).get("tres") or {}).get("total") or []
    gpus = [
        int(number(each.get("count")) or 0)
        for each in limits
        if (each.get("type"), each.get("name")) == ("gres", "gpu")
    ]
    parent, shares = text(value.get("parent_account")), number(value.get("shares_raw"))
    return Association(
        account=account,
        user=text(value.get("user")),
        parent="" if parent == "root" else parent,
        shares=1.0 if shares is None or not 0 <= shares < 2**31 - 1 else shares,
        group_gpus=gpus[0] if gpus else None,
        qos=tuple(words(value.get("qos"))),
    )


def _said(content: bytes) -> str:
    return " ".join(content.decode("utf-8", "replace").split())[:200]
