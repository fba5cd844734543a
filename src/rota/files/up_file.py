"""The settings of a manager as a file: every option of `rota up`, under the same name with underscores."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from rota.files.document import read_document
from rota.files.durations import Seconds
from rota.files.shape import FileModel, checked

Text = Annotated[str, Field(min_length=1)]
_OTHER_FILES = frozenset({"nodes", "run", "roles", "physicalCluster", "taskRoles"})
"""Fields by which another kind of file is known."""


Rate = Annotated[float, Field(gt=0, le=1e6)]
Most = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]


class LimitsPart(FileModel):
    """What each caller may take; rates and numbers are for each token."""

    requests_per_second: Rate = 100.0
    requests_burst: Most = 1000
    requests_at_once: Most = 6
    requests_waiting: Most = 64
    streams: Most = 64
    jobs_per_second: Rate = 20.0
    jobs_burst: Most = 10_000
    jobs_at_once: Annotated[int, Field(strict=True, ge=1, le=10_000)] = 1000
    waiting_jobs: Most = 20_000
    connections: Annotated[int, Field(strict=True, ge=8, le=60_000)] = 2000
    tasks: Most | None = None
    """Tasks without devices that run at once; without it, 16 for each CPU, at least 256."""


class UpFile(FileModel):
    """How a manager is run. What is not given is as `rota up` says."""

    emulate: Text | None = None
    policy: Text = "priority"
    placement: Text | None = None
    tenancy: Text = "none"
    host: Text = "127.0.0.1"
    port: Annotated[int, Field(strict=True, ge=0, le=65535)] = 7650
    data: Path | None = None
    database: Text | None = None
    run_as: Text | None = None
    keep: Annotated[Seconds, Field(gt=0)] = 30 * 86400.0
    estimate_bound: Annotated[float, Field(ge=0)] = 0.25
    require_token: Annotated[bool, Field(strict=True)] = False
    cgroups: Literal["auto", "on", "off"] = "auto"
    tls_cert: Path | None = None
    tls_key: Path | None = None
    log_format: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    limits: LimitsPart = LimitsPart()

    @model_validator(mode="after")
    def _agree(self) -> UpFile:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("TLS needs both tls_cert and tls_key")
        return self


def is_up_file(document: object) -> bool:
    """Whether a file's values are settings of a manager."""
    if not isinstance(document, Mapping) or _OTHER_FILES & document.keys():
        return False
    return bool(UpFile.model_fields.keys() & document.keys())


def read_up_file(path: Path) -> dict[str, object]:
    """The settings in a file that are given there; names of files in it are seen from where it lies."""
    return settings_from(read_document(path), path)


def settings_from(document: object, path: Path) -> dict[str, object]:
    """The settings in a document that was read from `path`."""
    values = {} if document is None else document
    file = checked(UpFile, values, path)
    given = {name: getattr(file, name) for name in file.model_fields_set}
    beside = path.absolute().parent
    for name in ("data", "tls_cert", "tls_key"):
        if isinstance(given.get(name), Path):
            given[name] = beside / given[name]
    spec = given.get("emulate")
    if isinstance(spec, str) and spec.endswith((".yaml", ".yml", ".json")):
        given["emulate"] = str(beside / spec)
    return given
