"""Data sets: folders of the machine or URLs of buckets, named by an admin for some tenants, that jobs use by name."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rota.core.errors import RotaError, did_you_mean
from rota.core.model.job import JobId
from rota.store.data.buckets.url import check_url, is_url
from rota.store.run_folder import Json, read_json, write_json
from rota.store.sealing import Sealer, is_sealed, load_sealer

MOST = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """A folder or a URL by name; without tenants all may use it."""

    name: str
    path: str
    read_only: bool = True
    tenants: tuple[str, ...] = ()
    about: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the file system that reads its URL, by name; dots lead into nested ones."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """The same, never shown; sealed in the file."""

    @property
    def is_bucket(self) -> bool:
        """Whether it is fetched from a URL."""
        return is_url(self.path)

    def is_for(self, tenants: Collection[str] | None) -> bool:
        """Whether a user of some tenants may use it; None means of all tenants."""
        return not self.tenants or tenants is None or any(tenant in self.tenants for tenant in tenants)

    def values(self) -> Json:
        """The data set as plain values, without its name, and its secrets by name only."""
        return {
            "path": self.path,
            "read_only": self.read_only,
            "tenants": list(self.tenants),
            "about": self.about,
            "options": dict(self.options),
            "secrets": sorted(self.secrets),
        }

    def file_system_options(self) -> Json:
        """Return what opens its URL, credentials included."""
        found: Json = {}
        for name, value in {**self.options, **self.secrets}.items():
            *above, last = name.split(".")
            place = found
            for each in above:
                place = place.setdefault(each, {})
                if not isinstance(place, dict):
                    raise RotaError(f"data set {self.name}: the option {each} is a value and has parts")
            place[last] = {"true": True, "false": False}.get(value, value)
        return found


class DataSets:
    """The data sets of a manager, in `data-sets.json` of its folder."""

    def __init__(self, home: Path) -> None:
        self._file = home / "data-sets.json"

    def all(self) -> list[DataSet]:
        """Return all data sets by name."""
        return [_data_set(name, values) for name, values in sorted(self._read().items())]

    def unsealed(self, data_set: DataSet) -> DataSet:
        """Return a data set with its secrets as they are."""
        if not data_set.secrets:
            return data_set
        sealer, owner = self._sealer, _seal_of(data_set)
        plain = {name: sealer.unseal_text(value, owner) for name, value in data_set.secrets.items()}
        if any(is_sealed(value) for value in plain.values()):
            raise RotaError(f"data set {data_set.name}: its secrets can't be decrypted; an admin adds it again")
        return replace(data_set, secrets=plain)

    def find(self, name: str, tenant: str) -> DataSet:
        """Return a data set that a tenant may use; raises a `RotaError` that names those that there are."""
        known = {each.name: each for each in self.all() if each.is_for((tenant,))}
        if name not in known:
            way = did_you_mean(name[:64], known) if known else "an admin adds it with `rota data add`"
            raise RotaError(f"data: tenant {tenant} has no data set {name[:64]!r}; {way}")
        return known[name]

    def put(self, data_set: DataSet) -> bool:
        """Add a data set or replace the one of its name; return whether it is new."""
        if data_set.is_bucket:
            self._check_bucket(data_set)
        elif data_set.options or data_set.secrets:
            raise RotaError(f"data set {data_set.name}: options and secrets are for URLs; {data_set.path:.200} is none")
        else:
            self._check_folder(data_set, data_set.path)
        known = self._read()
        if data_set.name not in known and len(known) >= MOST:
            raise RotaError(f"there are {MOST} data sets already; remove some")
        sealed = {name: self._sealer.seal_text(value, _seal_of(data_set)) for name, value in data_set.secrets.items()}
        write_json(self._file, {**known, data_set.name: {**data_set.values(), "secrets": sealed}})
        self._file.chmod(0o600)
        return data_set.name not in known

    def _check_bucket(self, data_set: DataSet) -> None:
        check_url(data_set.name, data_set.path)
        if not data_set.read_only:
            raise RotaError(f"data set {data_set.name}: jobs can't write to a bucket; leave --writable out")
        data_set.file_system_options()
        if data_set.path.startswith("file://"):
            self._check_folder(data_set, data_set.path.removeprefix("file://"), exists=False)

    @property
    def _sealer(self) -> Sealer:
        return load_sealer(self._file.parent)

    def _check_folder(self, data_set: DataSet, text: str, *, exists: bool = True) -> None:
        path = Path(text)
        if not path.is_absolute() or ".." in path.parts:
            raise RotaError(f"data set {data_set.name}: path is {data_set.path!r:.200}; it must be absolute")
        if exists and not path.is_dir():
            raise RotaError(f"data set {data_set.name}: {data_set.path:.200} is no folder of the manager's machine")
        home = self._file.parent.resolve()
        if home.is_relative_to(path.resolve()) or path.resolve().is_relative_to(home):
            raise RotaError(
                f"data set {data_set.name}: {data_set.path:.200} holds files of the manager; use another folder"
            )

    def remove(self, name: str) -> bool:
        """Forget a data set; its files stay. Return whether there was one."""
        known = self._read()
        if name not in known:
            return False
        write_json(self._file, {key: values for key, values in known.items() if key != name})
        return True

    def _read(self) -> dict[str, Any]:
        return read_json(self._file) or {}


def _data_set(name: str, values: Json) -> DataSet:
    return DataSet(
        name=name,
        path=values["path"],
        read_only=values["read_only"],
        tenants=tuple(values["tenants"]),
        about=values["about"],
        options=values.get("options", {}),
        secrets=values.get("secrets", {}),
    )


def _seal_of(data_set: DataSet) -> str:
    """Return what the secrets of a data set are bound to: moved to another name or place they can't be opened."""
    return f"data set {data_set.name} {data_set.path}"


def data_folder(home: Path, job_id: JobId) -> Path:
    """Where the tasks of a job find its data sets, by name. The folder is the manager's: tasks can't change it."""
    return home / "runs" / job_id / "data"


def data_variables(home: Path, job_id: JobId, names: Collection[str]) -> dict[str, str]:
    """Return the variables that tell tasks where their data sets are."""
    folder = data_folder(home, job_id)
    return {f"ROTA_DATA_{re.sub('[^A-Za-z0-9]', '_', name).upper()}": str(folder / name) for name in names}


VERSIONS = "data.json"
"""In the folder of an attempt: where the versions lie that were fetched for it."""


def source_of(data_set: DataSet, attempt_folder: Path) -> str:
    """Return the folder that an attempt of a job uses as a data set."""
    if not data_set.is_bucket:
        return data_set.path
    found = (read_json(attempt_folder / VERSIONS) or {}).get(data_set.name)
    if found is None:
        raise RotaError(f"data set {data_set.name} was changed while it was fetched")
    return str(found)


def place_data(
    home: Path, job_id: JobId, tenant: str, names: Collection[str], attempt_folder: Path, *, mounts: bool
) -> list[list[Any]]:
    """Make the places of a job's data sets: links, or what has to be mounted (source, target, whether read-only)."""
    folder = data_folder(home, job_id)
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    found: list[list[Any]] = []
    for name in names:
        data_set = DataSets(home).find(name, tenant)
        place = folder / name
        if mounts:
            place.mkdir(exist_ok=True)
            found.append([source_of(data_set, attempt_folder), str(place), data_set.read_only])
            continue
        source = source_of(data_set, attempt_folder)
        if os.path.islink(place) and data_set.is_bucket and os.readlink(place) != source:
            place.unlink()  # of an earlier attempt, which had another version
        if not os.path.lexists(place):
            place.symlink_to(source)
    return found
