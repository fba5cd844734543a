"""Prepares an attempt before its tasks are started: its account, its folders, and what its tasks are confined to."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rota.core.errors import RotaError
from rota.drivers.local.confinement.accounts import UnixAccount, look_up
from rota.drivers.local.confinement.private_folders import make_private, private_folder, remove_private
from rota.drivers.local.confinement.project_quota import limit_by_quota
from rota.drivers.local.containers.container_order import container_folder, remove_containers
from rota.drivers.local.link_terms import write_terms
from rota.store.data.buckets.cache import BucketCache, pin_of
from rota.store.data.data_sets import data_folder, place_data
from rota.store.run_folder import attempt_folder, over_scratch, read_json, shared_folder, write_json
from rota.store.sealing import KEY_FILE, is_sealed

if TYPE_CHECKING:
    from rota.drivers.local.attempt import Attempt
    from rota.drivers.local.launch_order import LaunchOrder
    from rota.drivers.local.settings import Settings
    from rota.drivers.local.task import TaskHandle

PASSED_THROUGH = 0o711
"""The mode of folders that tasks of other users have to pass through and can't list."""

_ATTEMPT_FILE = "attempt.json"
OF_GROUP = 0o710
"""The mode of a job's folder: only the group of its user can pass through, whatever modes the user gives its files."""


def make_home(settings: Settings) -> None:
    """Make the manager's folder. Raises a `RotaError` if tasks of other users could not pass through what is above."""
    home = settings.home
    if settings.accounts.is_empty:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        return
    for folder in reversed((home, *home.parents)):
        if not folder.exists():
            folder.mkdir()
            folder.chmod(PASSED_THROUGH)
        elif folder != home and not folder.stat().st_mode & 0o001:
            raise RotaError(
                f"data is {home}: tasks run as other users, who can't pass through {folder}; "
                "choose a folder that they can reach, such as --data /var/lib/rota"
            )
    home.chmod(PASSED_THROUGH)


def prepare_attempt(attempt: Attempt, order: LaunchOrder, settings: Settings) -> None:
    """Settle the account of an attempt and make its folders; repeated calls change nothing.

    Raises a `RotaError` if there is no account for it, and an `OSError` if the folders can't be made.
    """
    job = order.job
    if any(is_sealed(value) for role in order.launch.roles for value in role.env.values()):
        raise RotaError(
            f"its secrets can't be decrypted: {settings.home / KEY_FILE} is not the key that they were encrypted with; "
            "restore it and restart the manager, or submit the job again"
        )
    name = order.account or settings.accounts.account_of(job.user, job.tenant)
    attempt.account = None if name is None else look_up(name)
    folder = attempt_folder(settings.home, job.id, order.attempt)
    folder.mkdir(parents=True, exist_ok=True)
    write_terms(folder, attempt.links)
    shared = shared_folder(settings.home, job.id)
    _make_shared(shared, attempt.account)
    if attempt.account is not None:
        for each in (settings.home, shared.parent.parent, folder):
            each.chmod(PASSED_THROUGH)
        os.chown(shared.parent, os.geteuid(), attempt.account.gid)
        shared.parent.chmod(OF_GROUP)
    written = [shared]
    is_confined = settings.confinement.applies_to(attempt.account)
    mounts: list[list[Any]] = []
    if order.launch.data:
        is_mounted = is_confined and settings.confinement.mounts
        mounts = place_data(settings.home, job.id, job.tenant, order.launch.data, folder, mounts=is_mounted)
    if is_confined:
        kept = [shared, *(task.folder for task in attempt.tasks), *_of_containers(attempt, settings)]
        if order.launch.data:
            kept.append(data_folder(settings.home, job.id))
        attempt.confine = make_private(settings.home, job.id, order.attempt, kept)
        attempt.confine |= {"proc": settings.confinement.proc, "seccomp": settings.confinement.seccomp}
        attempt.confine["data"] = mounts
        written.append(private_folder(settings.home, job.id, order.attempt) / "tmp")
    if settings.scratch_bytes:
        limit_by_quota(written, f"{settings.home}/{job.id}", settings.scratch_bytes)
        # With or without a quota: the output of all attempts counts, which the supervisors write.
        counted = [shared.parent, *written[1:]]  # with the containers' own folders, which lie beside the shared one
        attempt.scratch = {"bytes": settings.scratch_bytes, "folders": [str(path) for path in counted]}
        attempt.scratch["mark"] = str(over_scratch(attempt_folder(settings.home, job.id, order.attempt)))


def remove_leftovers(settings: Settings, attempt: Attempt) -> None:
    """Remove what an attempt that has ended had for its tasks only: their /tmp, and what their containers wrote.

    What it used of the cache of data sets may be evicted from now on.
    """
    if attempt.launch.data:
        BucketCache(settings.home, settings.data_cache_bytes).unpin(user=pin_of(attempt.job.id, attempt.number))
    if settings.confinement.mounts:
        remove_private(settings.home, attempt.job.id, attempt.number)
    if attempt.launch.image is not None:
        ranks = [task.slot.rank for task in attempt.tasks]
        remove_containers(settings.home, attempt.job.id, attempt.number, ranks)


def _of_containers(attempt: Attempt, settings: Settings) -> list[Path]:
    """Return what the runtime of an attempt's containers needs at its own path."""
    if attempt.launch.image is None:
        return []
    folders = [
        container_folder(settings.home, attempt.job.id, attempt.number, each.slot.rank) for each in attempt.tasks
    ]
    for folder in folders:
        folder.mkdir(mode=0o700, exist_ok=True)
    return [*folders, *(path for path in settings.containers.images if path.is_dir())]


def open_to_its_user(attempt: Attempt, task: TaskHandle) -> None:
    """Make the folder of a task, which a task of another user than the manager can pass through."""
    if attempt.account is not None:
        task.folder.mkdir(exist_ok=True)
        task.folder.chmod(PASSED_THROUGH)


def rendezvous_port(home: Path, order: LaunchOrder) -> int:
    """Return the rendezvous port, the same for all tasks of an attempt; write down what work it began with."""
    folder = attempt_folder(home, order.job.id, order.attempt)
    known = read_json(folder / _ATTEMPT_FILE)
    if known is None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            known = {"port": probe.getsockname()[1], "work_s": order.work_s}
        write_json(folder / _ATTEMPT_FILE, known)
    return int(known["port"])


def has_begun(home: Path, order: LaunchOrder) -> bool:
    """Return whether the folder of an attempt was made."""
    return attempt_folder(home, order.job.id, order.attempt).exists()


def work_at_start(home: Path, order: LaunchOrder) -> float:
    """Return the work with which the processes of an attempt began; an older Rota did not write it down."""
    known = read_json(attempt_folder(home, order.job.id, order.attempt) / _ATTEMPT_FILE)
    return order.work_s if known is None else float(known.get("work_s", order.work_s))


def _make_shared(shared: Path, account: UnixAccount | None) -> None:
    """Make the folder in which a job's tasks may write, under any user. What is above it is the manager's alone."""
    shared.mkdir(exist_ok=True, mode=0o700)
    if account is not None:
        os.chown(shared, account.uid, account.gid, follow_symlinks=False)
