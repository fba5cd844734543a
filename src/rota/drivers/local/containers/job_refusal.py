"""What a job may not ask of containers here, found when it is submitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.core.errors import RotaError
from rota.drivers.local.containers.settings import Containers, RuntimeName
from rota.drivers.local.containers.volumes import image_name, refuse_other_folders, volumes_of

if TYPE_CHECKING:
    from rota.files.job_shape import JobFile


def refuse_container(file: JobFile, containers: Containers, *, maps_accounts: bool) -> None:
    """Raise a `RotaError` that names the field if a job's container can't be made here."""
    if file.image is None:
        if file.volumes:
            raise RotaError(
                "job: volumes are mounted in containers, and this job has no image; it sees the machine's files as "
                "they are: leave volumes out, or add image"
            )
        return
    if containers.runtime is None:
        raise RotaError(f"job: image can't be honoured here: {containers.why}; leave it out, or see `rota doctor`")
    name = image_name(file.image)
    if name.endswith(".sif") and containers.runtime is not RuntimeName.APPTAINER:
        raise RotaError(f"job: image is {name}, a file of Apptainer's, and {containers.runtime.value} runs images here")
    volumes = volumes_of(file.volumes)
    # Docker's daemon resolves names as root, after any check: only what an admin named itself is safe.
    exactly = containers.runtime is RuntimeName.DOCKER and maps_accounts
    if containers.volumes is not None or exactly:
        refuse_other_folders(volumes, containers.volumes or (), exactly=exactly)
    for variable, value in _variables(file):
        if "\n" in value:
            raise RotaError(f"job: env: {variable} has a line break, which a container can't be given; encode it")


def _variables(file: JobFile) -> list[tuple[str, str]]:
    given = [*file.env.items(), *(item for role in file.roles.values() for item in role.env.items())]
    return [(name, value if isinstance(value, str) else value.secret) for name, value in given]
