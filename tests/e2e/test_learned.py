"""A manager with a learned placement goes on learning: better weights are taken up, others are not, and it says so."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from managers import Manager, eventually
from rota.mechanisms.learned.actor import Network
from rota.mechanisms.learned.weights import Learned, load_learned, save_learned
from rota.policies.published.learned.harmony import SHIPPED

pytest.importorskip("torch", reason="needs PyTorch: pip install 'rota[learn]'")
pytestmark = pytest.mark.slow
JOBS = 3
WORK = """
import sys, time
import rota.sdk
for step in rota.sdk.steps(range(int(sys.argv[1]))):
    time.sleep(0.1)
"""


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    """A manager whose weights want the opposite of what was learned, not strongly; it learns often, and from little."""
    now = load_learned(SHIPPED)
    turned = dict(now.network.of) | {"score.weight": -0.02 * now.network.of["score.weight"]}
    save_learned(tmp_path / "backwards.npz", Learned(Network(now.network.kinds, turned), now.linear))
    (tmp_path / "work.py").write_text(WORK)
    policy = f"harmony:weights={tmp_path / 'backwards.npz'},learn_s=6,learn_from=3"
    made = Manager(tmp_path, "--emulate", "gpu=32/4", "--policy", policy).start()
    yield made
    made.clean_up()


def submit(manager: Manager, steps: int) -> str:
    """Two workers that send each other much."""
    run = f"{sys.executable} work.py {steps}"
    return manager.submit(run, workers=2, resources={"gpus": 1}, labels={"model": "vgg16"})


def nodes_of(manager: Manager, job_id: str) -> set[str]:
    """Where it was started, as the journal says."""

    def started() -> list[list[Any]]:
        steps = b"".join(manager.client.journal()).splitlines()[1:]
        orders = [order for step in steps for order in json.loads(step).get("out", ())]
        return next((order["on"] for order in orders if (order["order"], order["job_id"]) == ("start", job_id)), [])

    return {slot[0] for slot in eventually(started)}


def told(manager: Manager, what: str) -> list[dict[str, Any]]:
    return [entry for entry in manager.client.get("/audit") if entry["what"] == what]


def test_better_weights_are_taken_up_and_others_are_not(manager: Manager) -> None:
    jobs = [submit(manager, 25 * (number + 1)) for number in range(JOBS)]
    assert all(len(nodes_of(manager, job_id)) == 2 for job_id in jobs)

    (swap,) = eventually(lambda: told(manager, "weights-swap"), within_s=200, every_s=1)
    assert (swap["who"], swap["thing"]) == ("rota", "harmony")
    assert swap["detail"].startswith("jobs of the journal end sooner: ")
    assert len(nodes_of(manager, submit(manager, 1))) == 1

    keep = eventually(lambda: told(manager, "weights-keep"), within_s=200, every_s=1)[0]
    assert keep["detail"].startswith("jobs of the journal do not end sooner: ")
    shown = manager.rota("audit", "--what", "weights-swap", "-o", "json")
    assert json.loads(shown.stdout) == [swap], shown.stderr
    log = (manager.folder / "up.log").read_text()
    assert log.index(" weights-swap ") < log.index(" weights-keep ")

    learned = str(next((manager.home / "weights").iterdir()))
    journal = manager.folder / "journal.jsonl"
    journal.write_bytes(b"".join(manager.client.journal()))
    assert learned in json.loads(journal.read_text().split("\n")[0])["policy"]
    again = manager.rota("sim", "--replay", str(journal))
    assert (again.returncode, again.stderr) == (0, "")
    assert manager.stop() == 0
    assert learned in manager.start().client.get("/policies")["policy"]
