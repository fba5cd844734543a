"""`rota demo`: a manager on emulated devices with real processes, to look at; with `--short`, a minute of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rota.cli.extras import has, need, way_to
from rota.cli.terminal import echo
from rota.core.errors import Unavailable

if TYPE_CHECKING:
    from rota.sdk.client import Client

Json = dict[str, Any]
FINAL = frozenset({"succeeded", "failed", "cancelled"})
READY_S = 30.0
LONGEST_S = 50.0
EVERY_S = 0.25

TRAINING = """
import time
import rota.sdk
run = rota.sdk.steps(range(90))
print("starts at step", run.step, flush=True)
for batch in run:
    time.sleep(0.03)
    run.report(loss=1 / (1 + run.step))
    if run.should_save:
        run.saved()
        print("saved at step", run.step + 1, flush=True)
"""


def demo(
    out: Annotated[Path, typer.Option(help="Where to leave the journal and the report.", metavar="DIR")] = Path(
        "out/demo"
    ),
    short: Annotated[bool, typer.Option("--short", help="Run a gang, an array and a preemption, then end.")] = False,
    minutes: Annotated[float | None, typer.Option(help="End after so long.", min=0.05, metavar="MINUTES")] = None,
    browser: Annotated[bool, typer.Option(help="Open the dashboard in a browser.")] = True,
) -> int:
    """Start a manager with emulated GPUs, three tenants and a live workload, and show it in a browser until Ctrl-C.

    Everything is in a folder that is removed at the end; the journal and the report stay in --out.

    Examples:

      rota demo

      rota demo --no-browser --minutes 5

      rota demo --short
    """
    need("server")
    out.mkdir(parents=True, exist_ok=True)
    return _short(out) if short else _live(out, minutes, browser)


def _live(out: Path, minutes: float | None, browser: bool) -> int:
    from rota.cli.manager.live_demo import GPUS, TENANTS, show

    with _manager(out, "--emulate", GPUS, "--tenants", ",".join(TENANTS)) as client:
        show(client, None if minutes is None else 60 * minutes, browser=browser)
        journal = out / "journal.jsonl"
        journal.write_bytes(b"".join(client.journal()))
    echo(f"journal: {journal}\npage:    {_page(journal, out)}", lines=True)
    return 0


def _short(out: Path) -> int:
    with _manager(out, "--emulate", "gpu=8/4") as client:
        echo(f"a manager of 8 emulated GPUs on 2 nodes: {client.url}")
        trained = _submit(client)
        jobs = _watch(client)
        echo("\noutput of the preempted job:", lines=True)
        for attempt in range(1, client.job(trained)["attempt"] + 1):
            output = b"".join(client.logs(trained, attempt=attempt)).decode()
            echo("".join(f"  attempt {attempt}: {line}\n" for line in output.splitlines()), nl=False, lines=True)
        journal = out / "journal.jsonl"
        journal.write_bytes(b"".join(client.journal()))
    page = _page(journal, out)
    echo(f"\njournal: {journal}\npage:    {page}", lines=True)
    preempted = any(job["id"] == trained and job["attempt"] > 1 for job in jobs)
    good = all(job["state"] == "succeeded" for job in jobs)
    if not (good and preempted):
        raise Unavailable(f"not everything went as it should: {[(job['name'], job['state']) for job in jobs]}")
    return 0


def _submit(client: Client) -> str:
    """The demo's jobs; the id of the one that will have to yield."""
    say = "echo rank $RANK of $WORLD_SIZE on $ROTA_NODE, GPUs $CUDA_VISIBLE_DEVICES; sleep 1"
    script = [sys.executable, "-c", TRAINING]
    needs = {"gpus": 4}
    checkpoint = {"path": "saved.json", "grace": "10s"}
    training = {"name": "training", "run": script, "priority": -1, "resources": needs, "checkpoint": checkpoint}
    trained = client.submit(training)[0]
    client.submit({"name": "gang", "run": say, "workers": 2, "resources": {"gpus": 2}})
    _until(lambda: (client.job(trained)["progress"] or {}).get("step", 0) > 20)
    sweep = {"name": "sweep", "run": "echo member $ROTA_ARRAY_INDEX; sleep 0.5", "resources": {"gpus": 1}}
    client.submit([{**sweep, "priority": -1, "array": number} for number in range(6)])
    client.submit({"name": "urgent", "run": "sleep 1", "priority": 10, "workers": 2, "resources": needs})
    return trained


def _until(holds: Any) -> None:
    deadline = time.monotonic() + READY_S
    while not holds():
        if time.monotonic() > deadline:
            raise Unavailable(f"the demo did not get going within {READY_S:.0f} s")
        time.sleep(0.05)


def _watch(client: Client) -> list[Json]:
    """Say what changes until everything has ended; the jobs as they ended."""
    seen: dict[str, str] = {}
    deadline = time.monotonic() + LONGEST_S
    begun = time.monotonic()
    while True:
        jobs = list(client.jobs(all=True))
        for job in reversed(jobs):
            if seen.get(job["id"]) != job["state"]:
                seen[job["id"]] = job["state"]
                why = f"  {job['reason']['sentence']}" if job["reason"] else ""
                echo(f"{time.monotonic() - begun:5.1f} s  {job['id']:>2} {job['name']:<9} {job['state']:<10}{why}")
        if all(job["state"] in FINAL for job in jobs):
            return jobs
        if time.monotonic() > deadline:
            raise Unavailable(f"the demo's jobs did not end within {LONGEST_S:.0f} s")
        time.sleep(EVERY_S)


@contextmanager
def _manager(out: Path, *options: str) -> Iterator[Client]:
    """A manager in folders of its own, gone when the demo is."""
    from rota.sdk.client import Client

    with tempfile.TemporaryDirectory(prefix="rota-demo-") as folder:
        env = {**os.environ, "XDG_STATE_HOME": f"{folder}/state", "XDG_DATA_HOME": f"{folder}/data"}
        command = [
            sys.executable,
            "-c",
            "from rota.cli.main import run; run()",
            "up",
            *options,
            "--min-run",
            "0s",
            "--port",
            "0",
        ]
        with (out / "manager.log").open("wb") as log:
            process = subprocess.Popen(command, env=env, stderr=log)
        try:
            sign = Path(folder, "state", "rota", "manager.json")
            _until(lambda: sign.exists() or process.poll() is not None)
            if process.poll() is not None:
                raise Unavailable(f"the manager did not start; see {out / 'manager.log'}")
            client = Client(json.loads(sign.read_text(encoding="utf-8"))["url"])
            yield client
            client.close()
        finally:
            process.terminate()
            process.wait(timeout=20)


def _page(journal: Path, out: Path) -> Path | str:
    """The journal drawn, as `rota report` does it; where it can't be, why."""
    if not has("sim"):
        return f"not drawn; {way_to('sim')}"
    from rota.cli.render import OutputFormat
    from rota.cli.study.report import report

    page = out / "report.html"
    report([journal], page, output=OutputFormat.TABLE)
    return page
