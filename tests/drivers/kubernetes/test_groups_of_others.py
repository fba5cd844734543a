"""Manifests written for KAI, Kueue and Volcano: their groups and their topology levels."""

from __future__ import annotations

import pytest

from drivers.kubernetes.objects import pod_object
from rota.core.errors import RotaError
from rota.core.model.job import JobId
from rota.drivers.kubernetes.gangs.gang import Gang, GangSource, key_of, stated_size
from rota.drivers.kubernetes.objects.controller_sizes import owner_path
from rota.drivers.kubernetes.objects.gang_jobs import job_of, role_name
from rota.drivers.kubernetes.objects.pods import Pod, pod_of
from rota.drivers.kubernetes.objects.topology_request import ANYWHERE, TopologyRequest, topology_of
from rota.drivers.kubernetes.settings import ClusterSettings

LEVELS = ("block", "rack", "nvlink", "kubernetes.io/hostname")


def pod(labels: dict[str, str] | None = None, **annotations: str) -> Pod:
    notes = {name.replace("__", "/").replace("_", "-"): text for name, text in annotations.items()}
    return pod_of(pod_object(labels=labels or {}, annotations=notes), ClusterSettings())


def test_volcano_group_is_asked_of_its_pod_group() -> None:
    one = pod_of(
        pod_object(annotations={"scheduling.k8s.io/group-name": "train"}, labels={"volcano.sh/task-spec": "ps"}),
        ClusterSettings(),
    )

    assert key_of(one) == ("default", GangSource.VOLCANO, "train")
    assert owner_path(Gang(key_of(one))) == ("/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups/train")
    assert role_name(one) == "ps"


def test_kai_group_is_asked_of_its_pod_group() -> None:
    one = pod(pod_group_name="pg-train")

    assert key_of(one) == ("default", GangSource.KAI, "pg-train")
    assert owner_path(Gang(key_of(one))) == "/apis/scheduling.run.ai/v2alpha2/namespaces/default/podgroups/pg-train"
    assert stated_size(one, key_of(one)) is None


def test_kueue_group_states_its_size() -> None:
    notes = {"kueue.x-k8s.io/pod-group-total-count": "4"}
    one = pod_of(pod_object(labels={"kueue.x-k8s.io/pod-group-name": "train"}, annotations=notes), ClusterSettings())

    assert key_of(one) == ("default", GangSource.KUEUE, "train")
    assert stated_size(one, key_of(one)) == 4


def test_tenant_is_read_from_the_queue_that_the_settings_name() -> None:
    named = ClusterSettings(tenant_label="kai.scheduler/queue")
    one = pod_of(pod_object(labels={"kai.scheduler/queue": "vision"}), named)
    other = pod_of(
        pod_object(annotations={"scheduling.volcano.sh/queue-name": "text"}),
        ClusterSettings(tenant_label="scheduling.volcano.sh/queue-name"),
    )

    assert job_of(Gang(key_of(one)), [one], named, JobId("j")).tenant == "vision"
    assert (
        job_of(
            Gang(key_of(other)), [other], ClusterSettings(tenant_label="scheduling.volcano.sh/queue-name"), JobId("j")
        ).tenant
        == "text"
    )


@pytest.mark.parametrize(
    ("notes", "topology"),
    [
        ({}, ANYWHERE),
        ({"kueue.x-k8s.io/podset-required-topology": "rack"}, TopologyRequest("rack")),
        ({"kai.scheduler/topology-required-placement": "block"}, TopologyRequest("block")),
        ({"kueue.x-k8s.io/podset-preferred-topology": "rack"}, TopologyRequest("", ("rack", "block"))),
        (
            {
                "kai.scheduler/topology-required-placement": "block",
                "kai.scheduler/topology-preferred-placement": "nvlink",
            },
            TopologyRequest("block", ("nvlink", "rack")),
        ),
        ({"rota.dev/topology-required": "nvlink"}, TopologyRequest("nvlink")),
    ],
)
def test_levels_are_read_in_the_words_of_each(notes: dict[str, str], topology: TopologyRequest) -> None:
    assert topology_of(pod_of(pod_object(annotations=notes), ClusterSettings()), LEVELS) == topology


def test_level_that_is_not_known_is_refused_by_name() -> None:
    one = pod_of(pod_object(annotations={"kueue.x-k8s.io/podset-required-topology": "rak"}), ClusterSettings())

    with pytest.raises(
        RotaError, match="podset-required-topology is 'rak', no level of `topology`; did you mean 'rack'"
    ):
        topology_of(one, LEVELS)
    assert topology_of(one, ()) == TopologyRequest("rak")
