"""Data sets: folders of the machine, named by an admin for some tenants, that jobs use by name."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rota.core.errors import RotaError, did_you_mean
from rota.core.model.job import JobId
from rota.store.run_folder import Json, read_json, write_json

MOST = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """A folder by name; without tenants all may use it."""

    name: str
    path: str
    read_only: bool = True
    tenants: tuple[str, ...] = ()
    about: str = ""

    def is_for(self, tenants: Collection[str] | None) -> bool:
        """Whether a user of some tenants may use it; None means of all tenants."""
        return not self.tenants or tenants is None or any(tenant in self.tenants for tenant in tenants)

    def values(self) -> Json:
        """The data set as plain values, without its name."""
        return {
            "path": self.path,
            "read_only": self.read_only,
            "tenants": list(self.tenants),
            "about": self.about,
        }


class DataSets:
    """The data sets of a manager, in `data-sets.json` of its folder."""

    def __init__(self, home: Path) -> None:
        self._file = home / "data-sets.json"

    def all(self) -> list[DataSet]:
        """Return all data sets by name."""
        return [_data_set(name, values) for name, values in sorted(self._read().items())]

    def find(self, name: str, tenant: str) -> DataSet:
        """Return a data set that a tenant may use; raises a `RotaError` that names those that there are."""
        known = {each.name: each for each in self.all() if each.is_for((tenant,))}
        if name not in known:
            way = did_you_mean(name[:64], known) if known else "an admin adds it with `rota data add`"
            raise RotaError(f"data: tenant {tenant} has no data set {name[:64]!r}; {way}")
        return known[name]

    def put(self, data_set: DataSet) -> bool:
        """Add a data set or replace the one of its name; return whether it is new."""
        path = Path(data_set.path)
        if not path.is_absolute() or ".." in path.parts:
            raise RotaError(f"data set {data_set.name}: path is {data_set.path!r:.200}; it must be absolute")
        if not path.is_dir():
            raise RotaError(f"data set {data_set.name}: {data_set.path:.200} is no folder of the manager's machine")
        home = self._file.parent.resolve()
        if home.is_relative_to(path.resolve()) or path.resolve().is_relative_to(home):
            raise RotaError(
                f"data set {data_set.name}: {data_set.path:.200} holds files of the manager; use another folder"
            )
        known = self._read()
        if data_set.name not in known and len(known) >= MOST:
            raise RotaError(f"there are {MOST} data sets already; remove some")
        write_json(self._file, {**known, data_set.name: data_set.values()})
        return data_set.name not in known

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
    )


def data_folder(home: Path, job_id: JobId) -> Path:
    """Where the tasks of a job find its data sets, by name. The folder is the manager's: tasks can't change it."""
    return home / "runs" / job_id / "data"


def data_variables(home: Path, job_id: JobId, names: Collection[str]) -> dict[str, str]:
    """Return the variables that tell tasks where their data sets are."""
    folder = data_folder(home, job_id)
    return {f"ROTA_DATA_{re.sub('[^A-Za-z0-9]', '_', name).upper()}": str(folder / name) for name in names}


def place_data(home: Path, job_id: JobId, tenant: str, names: Collection[str], *, mounts: bool) -> list[list[Any]]:
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
            found.append([data_set.path, str(place), data_set.read_only])
        elif not os.path.lexists(place):
            place.symlink_to(data_set.path)
    return found
