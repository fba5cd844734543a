"""Jobs in containers of the local driver, run by real Podman with an image that is built here."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from managers import Manager
from podman_images import IMAGE, OWN_MOUNTS, make_store, why_no_podman

REASON = why_no_podman()
pytestmark = [pytest.mark.skipif(REASON is not None, reason=str(REASON))]


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    """A manager that runs containers as its own user, with four emulated devices."""
    folder = tmp_path_factory.mktemp("containers")
    settings = folder / "rota.yaml"
    parts = {"health": {"checks": []}, "containers": {"runtime": "podman", "images": [str(make_store(folder))]}}
    settings.write_text(json.dumps(parts))
    made = Manager(folder, "--emulate", "gpu=4/4", "--config", str(settings))
    made.prelude = OWN_MOUNTS
    made.start()
    try:
        yield made
    finally:
        made.clean_up()


def test_task_runs_in_its_image(manager: Manager) -> None:
    job_id = manager.submit("cat /etc/whose; id; env; exit 3", image=IMAGE, resources={"gpus": 2})
    found = manager.wait(job_id, "failed")
    print(manager.said(job_id), found)
    assert 0
