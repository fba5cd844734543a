"""GPUs by the names under which runtimes hand them to containers (CDI, the Container Device Interface)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rota.core.errors import RotaError
from rota.drivers.local.gpu.mig import NamedDevice
from rota.drivers.local.task_runner.nvml import find_nvml
from rota.files.document import read_document

KIND = "nvidia.com/gpu"
FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))
_WAY_OUT = "run `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenGpu:
    """A GPU, or an instance of a partitioned one, that a task gets."""

    index: int | None
    """Of a whole GPU."""
    uuid: str


def given_gpus(devices: Sequence[int], named: Sequence[NamedDevice], nvml: str | None) -> tuple[GivenGpu, ...]:
    """Return the GPUs of a task; none where devices are emulated."""
    if nvml is None or not devices:
        return ()
    if named:
        return tuple(GivenGpu(index=None if each.profile else each.gpu, uuid=each.uuid) for each in named)
    found = find_nvml(None, nvml)
    uuids = [] if found is None else found.uuids()
    return tuple(GivenGpu(index=each, uuid=uuids[each] if each < len(uuids) else str(each)) for each in devices)


def cdi_names(gpus: Sequence[GivenGpu], folders: Iterable[Path] = FOLDERS) -> tuple[str, ...]:
    """Return the full names of GPUs in the specifications of this machine: by UUID where they have it, else by index.

    Raises a `RotaError` for a GPU that is in none.
    """
    known = _names(folders)
    found = []
    for gpu in gpus:
        name = next((each for each in (gpu.uuid, str(gpu.index)) if each in known), None)
        if name is None:
            where = ", ".join(map(str, folders))
            raise RotaError(f"GPU {gpu.uuid} is in no CDI specification of {where}; {_WAY_OUT}")
        found.append(f"{KIND}={name}")
    return tuple(found)


def has_specification(folders: Iterable[Path] = FOLDERS) -> bool:
    """Whether GPUs can be handed to containers by name."""
    return bool(_names(folders))


def _names(folders: Iterable[Path]) -> set[str]:
    names: set[str] = set()
    for folder in folders:
        if not folder.is_dir():
            continue
        for path in sorted(folder.iterdir()):
            if path.suffix not in (".yaml", ".yml", ".json"):
                continue
            try:
                document = read_document(path)
            except RotaError:  # another program's; runtimes leave out what they can't read, too
                continue
            if isinstance(document, dict) and document.get("kind") == KIND:
                devices = document.get("devices")
                names |= {str(each.get("name")) for each in devices or () if isinstance(each, dict)}
    return names
