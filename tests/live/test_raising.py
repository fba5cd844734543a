"""More memory for jobs that ran out of what the manager chose, and for the next ones like them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from builders import GIB, cluster, job, node, on
from pasts import Past
from rota.core.model.placement import Placement
from rota.core.state.inventory import Inventory
from rota.core.state.job_record import LiveJob
from rota.files.job import job_file
from rota.live.estimates.learning import settled_by
from rota.live.estimates.oom_history import WEEK_S, OomHistory
from rota.live.estimates.oom_retry import MOST_RAISES, NoMore, Raise, more_memory

HOST, GPU = "out-of-memory", "gpu-out-of-memory"
NODES = cluster(
    node("n1", 4, memory_bytes=6 * GIB, device_memory_bytes=16 * GIB),
    node("n2", 4, memory_bytes=3 * GIB, device_memory_bytes=40 * GIB),
)


def chosen(field: str = "memory", given: object = "2Gi", **told: object) -> dict[str, Any]:
    """A job file in which the manager chose an amount."""
    ours = {"given": given, "trusted": False, "error": None, **told}
    return {"run": "train", "resources": {"gpus": 1, field: given}, "estimated": {field: ours}}


def after(spec: dict[str, Any], failure: str | None = HOST, at: Placement | None = None) -> Raise | NoMore | None:
    """What is done about a failure of a job on the first node."""
    live = LiveJob(job("7"), 0, 0.0, 1.0)
    live.set_placement(on("n1", 1) if at is None else at)
    return more_memory(json.dumps(spec), live, Inventory(NODES).nodes, failure)


def test_memory_that_was_chosen_is_doubled_and_said() -> None:
    found = after(chosen())

    assert isinstance(found, Raise)
    assert found.message == "out of memory with 2.00 GiB, which Rota chose; tried again with 4.00 GiB"
    assert found.job.roles[0].memory_bytes == 4 * GIB
    assert found.spec["resources"]["memory"] == 4 * GIB
    assert found.spec["estimated"]["memory"]["raised"] == 1
    job_file(found.spec)


def test_memory_that_is_raised_again_ends_with_the_largest_node() -> None:
    second = after(chosen(given=4 * GIB, raised=1))
    assert isinstance(second, Raise)
    assert second.job.roles[0].memory_bytes == 6 * GIB

    assert after(second.spec) == NoMore(
        message="out of memory with 6.00 GiB, which Rota chose; no node is known to have more"
    )


@pytest.mark.parametrize(
    ("spec", "most"),
    [(chosen(given="1Gi", raised=MOST_RAISES), MOST_RAISES), ({**chosen(), "max_restarts": 0}, 0)],
    ids=["often enough", "never, says the user"],
)
def test_memory_is_not_raised_for_ever(spec: dict[str, Any], most: int) -> None:
    found = after(spec)

    assert isinstance(found, NoMore)
    assert f"that is raised at most {most} times: ask for what it needs yourself" in found.message


@pytest.mark.parametrize(
    ("spec", "failure"),
    [
        ({"run": "train", "resources": {"memory": "2Gi"}}, HOST),
        (chosen(), GPU),
        (chosen(), "exit"),
        (chosen(), None),
    ],
    ids=["the user's own", "of the other kind", "another failure", "stopped"],
)
def test_what_users_asked_for_stands(spec: dict[str, Any], failure: str | None) -> None:
    assert after(spec, failure) is None


def test_part_of_a_device_is_doubled_and_a_whole_one_changed_for_a_larger() -> None:
    part = after(chosen("gpu_memory", "8Gi"), GPU, on("n1", 1, milli=500))
    whole = after(chosen("gpu_memory", "8Gi"), GPU)
    largest = after(chosen("gpu_memory", 40 * GIB), GPU)

    assert isinstance(part, Raise)
    assert part.job.roles[0].device_memory_bytes == 16 * GIB
    assert isinstance(whole, Raise)
    assert whole.job.roles[0].device_memory_bytes == 40 * GIB
    assert whole.message == "out of GPU memory with a whole GPU; tried again with 40.00 GiB"
    assert largest == NoMore(message="out of GPU memory with a whole GPU; no GPU is known to have more")


def test_only_roles_with_the_amount_that_was_chosen_get_more() -> None:
    roles = {"a": {"memory": "2Gi", "run": "x"}, "b": {"memory": "1Gi", "run": "x"}}
    found = after({"roles": roles, "estimated": chosen()["estimated"]})

    assert isinstance(found, Raise)
    assert [role.memory_bytes for role in found.job.roles] == [4 * GIB, GIB]


# -- the next one ----------------------------------------------------------------------------------


@pytest.fixture
def past(tmp_path: Path) -> Past:
    return Past(tmp_path)


def next_one(past: Past, size: int, more: dict[str, str] | None = None, most: int | None = None) -> dict[str, Any]:
    asked = {"name": "train", "run": f"python train.py --size {size}", "resources": {"memory": "auto"}}
    asked |= more or {}
    least = OomHistory(past.records, lambda field: most).least(asked)
    told: dict[str, Any] = settled_by({}, asked, 0.25, least)["estimated"]["memory"]
    return told


def test_next_job_of_the_kind_asks_for_twice_what_was_too_little(past: Past) -> None:
    past.add(1.0, size=100, state="failed", failure=HOST, memory="8Gi")

    told = next_one(past, 100)

    assert (told["given"], told["why"]) == (16 * GIB, "job 0, which is like it, ran out of less")
    assert next_one(past, 100, most=12 * GIB)["given"] == 12 * GIB


@pytest.mark.parametrize(
    ("size", "more"),
    [(99, {}), (100, {"name": "other"}), (100, {"tenant": "other"})],
    ids=["smaller", "another kind", "another tenant"],
)
def test_other_jobs_get_the_usual(past: Past, size: int, more: dict[str, str]) -> None:
    past.add(1.0, size=100, state="failed", failure=HOST, memory="8Gi")

    assert next_one(past, size, more)["given"] == "4Gi"


def test_what_ran_out_long_ago_is_forgotten(past: Past) -> None:
    past.add(1.0, size=100, state="failed", failure=HOST, memory="8Gi", submitted_s=time.time() - WEEK_S - 60)

    assert next_one(past, 100)["given"] == "4Gi"


def test_other_failures_after_a_raise_say_no_more_than_that(past: Past) -> None:
    ours = {"memory": {"given": 8 * GIB, "trusted": False, "raised": 1}}
    past.add(7000, size=100, state="failed", failure="exit", attempt=2, memory=8 * GIB, estimated=ours)

    assert next_one(past, 100)["given"] == 8 * GIB


def test_what_worked_after_a_raise_is_given_at_once(past: Past) -> None:
    ours = {"memory": {"given": 8 * GIB, "trusted": False, "raised": 1}}
    past.add(7000, size=100, attempt=2, memory=8 * GIB, estimated=ours)

    assert next_one(past, 100)["given"] == 8 * GIB
    assert next_one(past, 400)["given"] == 8 * GIB


def test_less_than_the_usual_is_no_reason_to_change_it(past: Past) -> None:
    past.add(1.0, size=100, state="failed", failure=HOST, memory="1Gi")

    assert next_one(past, 100)["given"] == "4Gi"
