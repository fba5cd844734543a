"""The calls of the client about files: artefacts of jobs, snapshots of code, and templates of jobs."""

from __future__ import annotations

import http.client
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from rota.core.errors import RotaError

if TYPE_CHECKING:
    from rota.sdk.snapshot import PackedCode

Json = dict[str, Any]
CHUNK = 1 << 18
PART = 2 << 20
"""How much of a snapshot is sent in one request."""


class DataCalls(ABC):
    """What a client can do with files."""

    @abstractmethod
    def _call(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Any: ...

    @abstractmethod
    def _open(self, method: str, path: str) -> AbstractContextManager[http.client.HTTPResponse]: ...

    def files(self, job_id: str, path: str = "") -> Json:
        """Return the files that a job wrote below a folder of its own, by path, and whether there are more."""
        answer: Json = self._call("GET", f"/jobs/{quote(job_id, safe='')}/files?{urlencode({'path': path})}")
        return answer

    def read_file(self, job_id: str, path: str) -> Iterator[bytes]:
        """Yield the content of a file that a job wrote."""
        with self._open("GET", f"/jobs/{quote(job_id, safe='')}/files/{quote(path, safe='/')}") as answer:
            size, seen = int(answer.headers.get("Content-Length", "-1")), 0
            while read := answer.read1(CHUNK):
                seen += len(read)
                yield read
            if seen != size >= 0:
                raise RotaError(f"{path} of job {job_id} changed while it was read: {seen} of {size} bytes came")

    def get_file(self, job_id: str, path: str, to: Path, *, replace: bool = False) -> int:
        """Write a file of a job to a path of this machine, whole or not at all; return its size."""
        if os.path.lexists(to) and not replace:
            raise RotaError(f"{to} exists already; give another place with --to, or replace it with --force")
        to.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(prefix=f".{to.name[:100]}.", dir=to.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                for read in self.read_file(job_id, path):
                    file.write(read)
                size = file.tell()
            os.replace(draft, to)
        except BaseException:
            os.unlink(draft)
            raise
        return size

    def send_snapshot(self, snapshot: PackedCode, tenant: str | None = None) -> None:
        """Send packed code to the manager, as far as it has not got it."""
        query = {"size": snapshot.size} | ({} if tenant is None else {"tenant": tenant})
        place = f"/snapshots/{snapshot.digest}"
        have = int(self._call("GET", f"{place}?{urlencode(query)}")["have"])
        while have < snapshot.size:
            snapshot.archive.seek(have)
            part = snapshot.archive.read(PART)
            answer = self._call("PUT", f"{place}?{urlencode({**query, 'offset': have})}", part)
            have = int(answer["have"])

    def templates(self) -> list[Json]:
        """Return the templates of jobs: those of Rota, and those of the caller's tenants."""
        found: list[Json] = self._call("GET", "/templates")
        return found

    def template(self, name: str, tenant: str | None = None) -> Json:
        """Return a template of jobs with its parameters."""
        answer: Json = self._call("GET", _template(name, tenant))
        return answer

    def fill_template(self, name: str, parameters: Mapping[str, object], tenant: str | None = None) -> Json:
        """Return the `jobs`, or the `sweep`, that a template stands for with these values."""
        answer: Json = self._call("POST", _template(name, tenant, "/fill"), {"parameters": dict(parameters)})
        return answer

    def put_template(self, name: str, values: Json, tenant: str | None = None) -> Json:
        """Add a template to a tenant, or replace it."""
        answer: Json = self._call("PUT", _template(name, tenant), values)
        return answer

    def remove_template(self, name: str, tenant: str | None = None) -> Json:
        """Remove a template of a tenant."""
        answer: Json = self._call("DELETE", _template(name, tenant))
        return answer

    def search(self, text: str, *, tenant: str | None = None, limit: int = 50) -> list[Json]:
        """Return the jobs that have all words of a text in their names, labels, commands, messages or outputs."""
        wanted = {"q": text, "limit": limit} | ({} if tenant is None else {"tenant": tenant})
        answer: Json = self._call("GET", f"/search?{urlencode(wanted)}")
        found: list[Json] = answer["matches"]
        return found

    def data_sets(self) -> list[Json]:
        """Return the data sets that the caller's tenants may use."""
        found: list[Json] = self._call("GET", "/data-sets")
        return found

    def put_data_set(self, name: str, values: Json) -> Json:
        """Add a data set of a `path`, or replace it; for admins."""
        answer: Json = self._call("PUT", f"/data-sets/{quote(name, safe='')}", values)
        return answer

    def remove_data_set(self, name: str) -> None:
        """Forget a data set; its files stay."""
        self._call("DELETE", f"/data-sets/{quote(name, safe='')}")


def _template(name: str, tenant: str | None, action: str = "") -> str:
    query = "" if tenant is None else f"?{urlencode({'tenant': tenant})}"
    return f"/templates/{quote(name, safe='')}{action}{query}"
