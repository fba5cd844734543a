"""Attempts of suspended jobs on disk: where they were, and how a later attempt is the same processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from rota.core.codec.values import decode_placement, encode_placement
from rota.core.model.cluster import Node
from rota.core.model.placement import Placement, device_indexes, same_devices
from rota.drivers.local.attempt import Attempt
from rota.drivers.local.confinement.device_rules import refused
from rota.drivers.local.launch_order import LaunchOrder
from rota.drivers.local.settings import Settings
from rota.store.run_folder import Json, attempt_folder, read_json, write_json

HELD_FILE = "held.json"


def write_held(attempt: Attempt, nodes: Sequence[Node]) -> None:
    """Write down that a job waits suspended, and the devices that it left."""
    names = [str(node.id) for node in nodes]
    with contextlib.suppress(OSError):  # the disk is full: a restart of the manager would end the job
        write_json(attempt.tasks[0].folder.parent / HELD_FILE, {"on": encode_placement(attempt.placement, names)})


def placement_before(folder: Path, nodes: Sequence[Node]) -> Placement | None:
    """Return the devices that the suspended job of a folder left; None if none waits there."""
    known: Json | None = None
    with contextlib.suppress(OSError, ValueError):
        known = read_json(folder / HELD_FILE)
    if known is None:
        return None
    indexes = {str(node.id): index for index, node in enumerate(nodes)}
    with contextlib.suppress(KeyError, TypeError, ValueError):
        return decode_placement(known["on"], indexes)
    return None


def link_attempt(home: Path, order: LaunchOrder, number: int) -> None:
    """Let the folder of the new attempt be that of the suspended one, whose processes go on."""
    folder = attempt_folder(home, order.job.id, order.attempt)
    with contextlib.suppress(FileExistsError):
        os.symlink(str(number), folder)


def is_suspendable(home: Path, order: LaunchOrder) -> bool:
    """Return whether the GPU memory of an attempt's only task can go to the host, or is on its way."""
    if order.launch.checkpoint or order.job.elastic is not None:
        return False
    state: Json | None = None
    with contextlib.suppress(OSError, ValueError):
        state = read_json(attempt_folder(home, order.job.id, order.attempt) / "0" / "state.json")
    return state is not None and bool(state.get("swap_bytes") or state.get("swap"))


def way_back(settings: Settings, token: str, before: Placement, after: Placement) -> Json | None:
    """The GPUs that change places, by name, and those of the task from now on; None if it goes on where it was.

    From now on the task may open its new GPUs, and no longer those of before.
    """
    changed = changed_devices(settings, before, after)
    if changed is not None:
        with contextlib.suppress(OSError):  # it then fails to open them, and says so
            settings.limits.refuse(token, refused(settings.device_nodes, changed["gpus"]))
    return changed


def changed_devices(settings: Settings, before: Placement, after: Placement) -> Json | None:
    """The GPUs that change places, by name, and those of the task from now on; None if they are the same."""
    if same_devices(before, after):
        return None
    new = devices_of(after)
    return {"pairs": changed_places(devices_of(before), new, settings.gpu.uuids if settings.gpu else ()), "gpus": new}


def devices_of(placement: Placement) -> list[int]:
    """Return the devices of a placement by index."""
    return [index for slot in placement for index in device_indexes(slot.devices)]


def changed_places(old: Sequence[int], new: Sequence[int], uuids: Sequence[str]) -> list[list[str]]:
    """Return pairs of names: from which GPU to which other, for all of the machine, as the driver wants it."""
    targets = dict(zip(old, new, strict=True))
    others = iter(index for index in range(len(uuids)) if index not in new)
    return [[uuids[each], uuids[targets[each] if each in targets else next(others)]] for each in range(len(uuids))]
