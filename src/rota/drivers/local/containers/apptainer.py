"""Apptainer: containers without a daemon or a store, as plain descendants of the task and as its user."""

from __future__ import annotations

from pathlib import Path

from rota.core.errors import RotaError
from rota.drivers.local.containers.plan import ContainerCommand, ContainerPlan
from rota.drivers.local.containers.settings import SEARCHED, Pull

PREFIX = "APPTAINERENV_"


def apptainer_command(plan: ContainerPlan) -> ContainerCommand:
    """Return how Apptainer runs a task. Raises a `RotaError` if its image is not here and may not be fetched."""
    home = plan.folder / "home"
    home.mkdir(mode=0o700, exist_ok=True)
    words = [plan.containers.program, "--silent", "exec", "--userns", "--contain", "--cleanenv", "--no-home"]
    words += ["--no-eval", "--writable-tmpfs", "--pwd", plan.workdir]
    words += ["--nv"] if plan.gpus else []
    return ContainerCommand(
        run=tuple(words),
        image=_image(plan),
        enter=tuple(words),
        env={"PATH": SEARCHED, "LANG": "C.UTF-8", "HOME": str(home), "APPTAINER_NO_EVAL": "1"},
        as_user=True,
        env_by_prefix=PREFIX,
    )


def _image(plan: ContainerPlan) -> str:
    """Return the file of an image, named as Apptainer names what it fetches, or the address of its registry."""
    name = plan.image
    if name.endswith(".sif"):
        return name
    if plan.containers.pull is Pull.ALWAYS:
        return f"docker://{name}"
    full = name if ":" in name.rpartition("/")[2] else f"{name}:latest"
    wanted = [part.replace("/", "_").replace(":", "_") + ".sif" for part in (full, full.rpartition("/")[2])]
    for folder in plan.containers.images:
        for each in wanted:
            if (folder / each).is_file():
                return str(folder / each)
    if plan.containers.pull is Pull.MISSING:
        return f"docker://{name}"
    where = ", ".join(map(str, plan.containers.images)) or "none is set"
    raise RotaError(f"there is no image {Path(wanted[0])} in the folders of containers.images ({where})")
