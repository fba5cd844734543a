"""The folders of a manager on this machine, and the file by which commands find it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

SIGN = "manager.json"
MACHINE_FOLDER = Path("/run/rota")
"""Where a manager that is a service of the machine writes its address, for all users."""


def data_folder() -> Path:
    """Return the default folder of the manager's database and the jobs' files."""
    return _folder("XDG_DATA_HOME", ".local/share")


def managers_data_folder() -> Path:
    """Return the data folder of the manager of this machine, as it states it itself; by default `data_folder()`."""
    found = _present_sign()
    return data_folder() if found is None or found.data is None else Path(found.data)


def state_folder() -> Path:
    """Return the folder of the file with the manager's address."""
    return _folder("XDG_STATE_HOME", ".local/state")


def _folder(variable: str, default: str) -> Path:
    base = os.environ.get(variable)
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / default) / "rota"


@dataclass(frozen=True)  # training environments may have Python 3.9, which knows no more
class ManagerAddress:
    """The address of the manager of this machine, and the certificate to trust."""

    url: str
    cacert: str | None = None


@dataclass(frozen=True)  # training environments may have Python 3.9, which knows no more
class ManagerSign:
    """What a manager writes about itself: its address, its process and its data folder."""

    address: ManagerAddress
    pid: int = 0
    data: str | None = None

    @property
    def runs(self) -> bool:
        """Whether the manager may be running."""
        return self.pid == 0 or Path("/proc", str(self.pid)).exists()


def write_sign(address: ManagerAddress, data: Path) -> None:
    """Write the manager's address, for commands of the same user to find; that of a service, for those of all users."""
    value = json.dumps({"url": address.url, "cacert": address.cacert, "pid": os.getpid(), "data": str(data)})
    folders = [state_folder()]
    if _is_service():
        folders.append(MACHINE_FOLDER)
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700 if folder != MACHINE_FOLDER else 0o755)
        draft = folder / f".manager.{os.getpid()}"
        draft.write_text(value, encoding="utf-8")
        draft.chmod(0o644)
        draft.replace(folder / SIGN)


def remove_sign() -> None:
    """Remove the address of this process; that of a manager started later stays."""
    for path in (state_folder() / SIGN, MACHINE_FOLDER / SIGN):
        try:
            if json.loads(path.read_text(encoding="utf-8"))["pid"] == os.getpid():
                path.unlink()
        except (OSError, ValueError, KeyError, TypeError):
            continue


def find_manager() -> ManagerAddress | None:
    """Return the address of the manager that this user started last, or that of the machine's service, or None."""
    found = _present_sign()
    return None if found is None else found.address


def _present_sign() -> ManagerSign | None:
    own = _read_sign(state_folder() / SIGN)
    if own is not None and own.runs:
        return own
    shared = _read_sign(MACHINE_FOLDER / SIGN) if _is_roots(MACHINE_FOLDER / SIGN) else None
    return shared or own


def _read_sign(path: Path) -> ManagerSign | None:
    """What a manager wrote about itself; None if there is no such file, or none that makes sense."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        address = ManagerAddress(url=str(value["url"]), cacert=value.get("cacert"))
        data = value.get("data")
        return ManagerSign(address=address, pid=int(value.get("pid", 0)), data=None if data is None else str(data))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _is_roots(path: Path) -> bool:
    """Whether only root can have written a file: commands send their token to the address in it."""
    try:
        return path.stat().st_uid == 0 and path.parent.stat().st_uid == 0 and not path.parent.stat().st_mode & 0o022
    except OSError:
        return False


def _is_service() -> bool:
    """Whether this process was started by systemd with the machine's folder for it."""
    return str(MACHINE_FOLDER) in os.environ.get("RUNTIME_DIRECTORY", "").split(":")
