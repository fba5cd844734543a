"""`rota notebook` and `rota tensorboard`: the real programs where they are installed, else one line."""

from __future__ import annotations

import json
import os
import shutil
import sys
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from managers import Manager, eventually
from rota.drivers.local.task_runner.interactive.carry import SERVICES as SERVICES_OF_TASKS
from rota.store.data.artefacts import SERVICES

pytestmark = pytest.mark.slow
EVENTS = """
import os, time
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter(os.environ["ROTA_RUN_DIR"])
for step in range(20):
    value = Summary.Value(tag="loss", simple_value=1 / (step + 1))
    writer.add_event(Event(step=step, wall_time=time.time(), summary=Summary(value=[value])))
writer.close()
"""


XSRF = {"Cookie": "_xsrf=same", "X-XSRFToken": "same"}
"""What Jupyter wants of a page's requests that change something."""


def needs(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed; pip install {'jupyterlab' if 'jup' in program else program}")
    return found


def ask(url: str, method: str = "GET", body: object = None) -> object:
    place = urlsplit(url)
    connection = HTTPConnection(place.hostname or "", place.port, timeout=60)
    try:
        path = place.path + (f"?{place.query}" if place.query else "")
        connection.request(method, path, None if body is None else json.dumps(body), {"Rota-Direct": "1", **XSRF})
        answer = connection.getresponse()
        assert answer.status < 300, (answer.status, answer.read())
        return json.loads(answer.read())
    finally:
        connection.close()


def test_missing_programs_are_said_in_one_line(shared: Manager, tmp_path: Path) -> None:
    bare = tmp_path / "bin"
    bare.mkdir()
    for name in ("sh", "mkdir", "rm"):
        (bare / name).symlink_to(shutil.which(name) or "")
    shared.env["PATH"], before = str(bare), shared.env["PATH"]
    try:
        job_id = shared.submit("true")
        for command, title in (("notebook",), "JupyterLab"), (("tensorboard", job_id), "TensorBoard"):
            ran = shared.rota(*command)
            package = title.lower()
            assert (ran.returncode, ran.stdout) == (2, "")
            assert ran.stderr.splitlines()[1:] == [
                f"error: {title} is not installed in this job's environment; install it there: pip install {package}"
            ]
    finally:
        shared.env["PATH"] = before


def test_what_can_not_be_shown_is_refused(shared: Manager) -> None:
    ids = [shared.submit("true", tenant=tenant) for tenant in ("nlp", "vision")]
    for args, why in (
        (["tensorboard", *ids], "the jobs belong to several tenants: nlp, vision; show those of one"),
        (["tensorboard", "98765"], "there is no job"),
        (["notebook", "--idle", "soon"], "--idle: not a duration: 'soon'"),
    ):
        ran = shared.rota(*args)
        assert (ran.returncode, len(ran.stderr.splitlines())) == (2, 1), ran.stderr
        assert why in ran.stderr


def test_folder_of_services_has_one_name() -> None:
    assert SERVICES == SERVICES_OF_TASKS  # tasks can't import the store


def test_notebook_runs_a_kernel_and_ends_when_it_is_idle(shared: Manager) -> None:
    needs("jupyter-lab")
    ran = shared.rota("notebook", "--gpus", "1", "--idle", "20s")
    assert ran.returncode == 0, ran.stderr
    url = ran.stdout.strip()
    job_id = url.split("/proxy/")[1].split("/")[0]
    assert url == f"{shared.client.url}/proxy/{job_id}/notebook/lab"
    kernel = ask(url.removesuffix("lab") + "api/kernels", "POST", {"name": "python3"})
    assert isinstance(kernel, dict)
    assert kernel["name"] == "python3"
    assert shared.wait(job_id, "succeeded", within_s=180)
    assert "rota: warning: the notebook is idle and ends in" in shared.said(job_id)
    socket = shared.home / "runs" / job_id / "shared" / SERVICES / "notebook"
    assert not os.path.lexists(socket) or socket.stat().st_mode & 0o777 == 0o600


def test_tensorboard_reads_the_folders_of_jobs(shared: Manager) -> None:
    needs("tensorboard")
    python = Path(needs("tensorboard")).with_name("python")
    job_id = shared.client.submit({"run": [str(python if python.exists() else sys.executable), "-c", EVENTS]})[0]
    shared.wait(job_id, "succeeded")
    ran = shared.rota("tensorboard", job_id)
    assert ran.returncode == 0, ran.stderr
    url = ran.stdout.strip()
    tags = eventually(lambda: ask(f"{url}data/plugin/scalars/tags"), within_s=120)
    assert tags == {f"job-{job_id}/.": {"loss": {"description": "", "displayName": "loss"}}}
