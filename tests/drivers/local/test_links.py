"""Tasks of a manager with a network get ranks by its links, and keep them and their turn over a restart."""

from __future__ import annotations

import json
from pathlib import Path

from builders import job, node
from local_drivers import Bench, until, with_driver
from rota.core.messages.events import JobEnded
from rota.core.model.placement import Slot
from rota.drivers.local.attempt import attempt_of
from rota.drivers.local.launch_order import LaunchOrder
from rota.drivers.local.link_terms import write_terms
from rota.files.job import job_file, launch_of
from rota.network.demand import IterationDemand
from rota.network.fabrics import fat_tree
from rota.network.link_guide import LinkGuide
from rota.network.model import LinkMechanism, NetworkModel
from rota.network.topology import NetworkTopology, duplex
from rota.store.run_folder import attempt_folder, tail

SAY = "echo $RANK $CUDA_VISIBLE_DEVICES $ROTA_SHIFT_S $ROTA_PERIOD_S $GLOO_SOCKET_IFNAME"
USUAL = IterationDemand(compute_s=0.6, bytes=0.4e9)


def pairs() -> LinkGuide:
    """Four devices in a ring of links: 0, 2, 1, 3."""
    cables = [duplex(f"n1/{one}", f"n1/{other}", 1e9) for one, other in ((0, 2), (2, 1), (1, 3), (3, 0))]
    topology = NetworkTopology(
        nodes=("n1",),
        links=tuple(link for cable in cables for link in cable),
        endpoints=(("n1", *(f"n1/{device}" for device in range(4))),),
    )
    return LinkGuide(NetworkModel(topology=topology, usual=USUAL, mechanism=LinkMechanism.CASSINI))


def test_tasks_are_told_their_turn(tmp_path: Path) -> None:
    async def course(bench: Bench) -> None:
        bench.driver.start(bench.order(SAY, workers=4))
        await until(lambda: bench.events(JobEnded))
        said = [tail(bench.folder(rank)).split() for rank in range(4)]
        assert [line[0] for line in said] == ["0", "1", "2", "3"]
        assert "".join(line[1] for line in said) in "02130213 03120312"  # around the ring of links
        assert {line[2] for line in said} == {"0.000000"}
        assert all(float(line[3]) > 0.6 for line in said)
        assert {line[4] for line in said} == {"lo"}

    with_driver(tmp_path, course, guide=pairs())


def test_labels_of_the_job_win(tmp_path: Path) -> None:
    async def course(bench: Bench) -> None:
        order = bench.order(SAY, workers=2)
        labelled = job("1", workers=2, labels=(("shift_s", "7"), ("period_s", "9")))
        bench.driver.start(
            LaunchOrder(job=labelled, launch=order.launch, placement=order.placement, attempt=1, failures=0, work_s=0.0)
        )
        await until(lambda: bench.events(JobEnded))
        assert tail(bench.folder(0)).split()[2:4] == ["7", "9"]

    with_driver(tmp_path, course, guide=pairs())


def test_ranks_and_turns_are_those_of_the_start(tmp_path: Path) -> None:
    nodes = [node(f"n{number}") for number in range(4)]
    topology = fat_tree(
        [str(each.id) for each in nodes], per_leaf=2, spines=1, link_bytes_per_s=1e9, oversubscription=2
    )
    model = NetworkModel(topology=topology, usual=USUAL, mechanism=LinkMechanism.CASSINI)
    file = job_file({"run": "true", "workers": 4, "resources": {"gpus": 1}})
    wanted = job("1", workers=4)
    order = LaunchOrder(
        job=wanted,
        launch=launch_of(file, wanted.id),
        placement=tuple(Slot(number, 1) for number in (0, 2, 1, 3)),
        attempt=1,
        failures=0,
        work_s=0.0,
    )
    first = attempt_of(order, nodes, tmp_path, "mark", LinkGuide(model), {wanted.id})
    assert [str(task.slot.node.id) for task in first.tasks] == ["n0", "n1", "n2", "n3"]
    assert first.links is not None

    folder = attempt_folder(tmp_path, wanted.id, 1)
    folder.mkdir(parents=True)
    write_terms(folder, first.links)
    assert json.loads((folder / "links.json").read_text())["order"] == [0, 2, 1, 3]

    other = NetworkModel(topology=fat_tree(["n0", "n2", "n1", "n3"], per_leaf=2, spines=1, link_bytes_per_s=1e9))
    again = attempt_of(order, nodes, tmp_path, "mark", LinkGuide(other), {wanted.id})

    assert [task.slot for task in again.tasks] == [task.slot for task in first.tasks]
    assert again.links == first.links
