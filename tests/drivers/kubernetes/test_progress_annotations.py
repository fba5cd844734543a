"""Progress of pods: what an annotation may say, and which pods of a gang count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import cluster, node
from drivers.kubernetes.objects import pod_object
from rota.core.model.job import JobId
from rota.core.model.placement import Slot
from rota.drivers.kubernetes.gangs.gang import Gang, Stage, key_of
from rota.drivers.kubernetes.objects.binding_annotations import assign_slots
from rota.drivers.kubernetes.objects.gang_jobs import job_of
from rota.drivers.kubernetes.objects.pods import PodPhase, pod_of
from rota.drivers.kubernetes.objects.progress_annotations import fraction_done, read_progress
from rota.drivers.kubernetes.settings import ClusterSettings


@pytest.mark.parametrize(
    ("text", "done"),
    [
        ("0.4", 0.4),
        ("1", 1.0),
        ("0", 0.0),
        ("400/1000", 0.4),
        ("1200/1000", 1.0),
        ("1/0", None),
        ("", None),
        ("40%", None),
        ("-0.4", None),
        ("1.5", None),
        ("nan", None),
        ("²/³", None),
        ("9" * 5000, None),
        (f"{'9' * 5000}/3", None),
        ("0.4\n", None),
    ],
)
def test_annotation_states_a_fraction_or_steps(text: str, done: float | None) -> None:
    assert read_progress(text) == done


@given(st.text())
def test_what_users_write_is_a_fraction_or_nothing(text: str) -> None:
    found = read_progress(text)

    assert found is None or 0.0 <= found <= 1.0


def running(*said: str | None) -> Gang:
    """A gang that runs, whose pods say so much."""
    settings = ClusterSettings()
    labels = {"rota.dev/job": "g"}
    pods = [pod_of(pod_object(f"g-{number}", labels=labels), settings) for number in range(len(said))]
    for pod, text in zip(pods, said, strict=True):
        pod.phase = PodPhase.RUNNING
        if text is not None:
            pod.annotations = {**pod.annotations, "rota.dev/progress": text}
    gang = Gang(key_of(pods[0]), members={pod.uid: pod for pod in pods})
    gang.job = job_of(gang, pods, settings, JobId("g-1"))
    assign_slots(gang, (Slot(0, (1 << len(said)) - 1, tasks=len(said)),), cluster(node("n1", 4)).nodes.__getitem__)
    for slot, pod in zip(gang.slots, pods, strict=True):
        slot.take(pod)
        gang.assigned[pod.uid] = slot
    gang.stage, gang.started = Stage.PLACED, True
    return gang


@pytest.mark.parametrize(
    ("said", "done"),
    [(("0.5", None), 0.5), (("0.5", "0.3"), 0.3), (("0.5", "soon"), 0.5), ((None, None), None)],
    ids=["one", "least", "nonsense", "none"],
)
def test_least_that_a_pod_states_counts(said: tuple[str | None, ...], done: float | None) -> None:
    assert fraction_done(running(*said)) == done


def test_gang_that_does_not_run_reports_nothing() -> None:
    gang = running("0.5")
    gang.started = False

    assert fraction_done(gang) is None


def test_pods_that_are_gone_do_not_count() -> None:
    gang = running("0.5", "0.3")
    del gang.members[list(gang.members)[1]]

    assert fraction_done(gang) == 0.5
