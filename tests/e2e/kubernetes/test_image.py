"""The image: its recipe, and the content of one that was built.

`tools/build-image TAG` builds it where buildah is; name the result in ROTA_IMAGE to have its content checked.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rota import __version__

ROOT = Path(__file__).parent.parent.parent.parent
RECIPE = (ROOT / "Containerfile").read_text()
MOST_BYTES = 600_000_000
"""The size of an unpacked image; most of it is the base, SciPy and NumPy."""
Json = dict[str, Any]


def test_recipe_has_two_stages_and_no_root() -> None:
    stages = re.findall(r"^FROM (\S+)", RECIPE, re.MULTILINE)
    assert len(stages) == 2
    last = RECIPE[RECIPE.rindex("\nFROM ") :]
    assert re.search(r"^USER 65532:65532$", last, re.MULTILINE)
    assert "pip install" not in last
    assert not re.search(r":latest\b", RECIPE)
    ignored = (ROOT / ".containerignore").read_text().splitlines()
    assert ignored[0] == "*"  # nothing goes into an image that is not named


@pytest.fixture(scope="module")
def image() -> str:
    name = os.environ.get("ROTA_IMAGE")
    if shutil.which("buildah") is None:
        pytest.skip("there is no buildah to look into an image with")
    if not name:
        pytest.skip("ROTA_IMAGE names no image; tools/build-image builds one")
    return name


def buildah(*args: str) -> str:
    done = subprocess.run(["buildah", *args], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def working(image: str) -> Iterator[str]:
    """A container of the image, unpacked."""
    name = buildah("from", "--pull-never", image).strip()
    yield name
    buildah("rm", name)


@pytest.mark.slow
def test_image_is_as_it_should_be(image: str, working: str) -> None:
    found: Json = json.loads(buildah("inspect", "--type", "image", image))["OCIv1"]["config"]
    assert found["User"] == "65532:65532"
    assert found["Entrypoint"] == ["rota"]
    folder = Path(buildah("mount", working).strip())
    try:
        packages = next((folder / "opt/rota/lib").glob("python3*/site-packages"))
        names = {each.name for each in packages.iterdir()}
        assert {"rota", "aiohttp", "orjson", "psycopg", "authlib"} <= names
        assert not {"pip", "pytest", "mypy", "torch", "hypothesis", "polars", "plotly"} & names
        assert (packages / "rota/files/alerts/data/dashboard.json").is_file()
        files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
        assert sum(path.lstat().st_size for path in files) < MOST_BYTES
        own = [path for path in (folder / "opt/rota").rglob("*") if not path.is_symlink()]
        assert not [path for path in own if path.lstat().st_mode & 0o6002]  # nothing others may write, nothing setuid
        assert not [path for path in own if path.suffix in (".whl", ".key", ".pem") and "cacert" not in path.name]
    finally:
        buildah("umount", working)


@pytest.mark.slow
def test_program_runs_in_the_image_as_nobody_in_particular(working: str) -> None:
    def inside(*args: str) -> str:
        return buildah("run", "--isolation", "chroot", working, "--", *args)

    assert inside("rota", "--version").strip() == f"rota {__version__}"
    assert inside("id", "-u").strip() == "65532"
    assert "kind: Deployment" in inside("rota", "k8s", "manifests")
    parts = "rota.api.serve_cluster, rota.web.gate, rota.live.workers.forecast_worker, rota.live.workers.whatif_worker"
    inside("/opt/rota/bin/python", "-c", f"import {parts}")
    assert "gavel" in inside("rota", "policies")
