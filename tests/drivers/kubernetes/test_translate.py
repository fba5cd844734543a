"""Objects of Kubernetes become our types at the door."""

from __future__ import annotations

from typing import Any

import pytest

from drivers.kubernetes.objects import node_object, pod_object
from rota.core.errors import RotaError
from rota.core.model.job import JobId
from rota.core.model.labels import Requirement, Taint, Toleration, is_met
from rota.drivers.kubernetes.api.quantity import milli, whole
from rota.drivers.kubernetes.api.rights import needed_rights
from rota.drivers.kubernetes.gangs.gang import Gang, GangSource, key_of, stated_size
from rota.drivers.kubernetes.objects.controller_sizes import owes_pods, tasks_of
from rota.drivers.kubernetes.objects.gang_jobs import job_id, job_of
from rota.drivers.kubernetes.objects.nodes import node_seen
from rota.drivers.kubernetes.objects.pods import pod_of
from rota.drivers.kubernetes.settings import ClusterSettings, read_settings

USUAL = ClusterSettings()


@pytest.mark.parametrize(
    ("text", "number"),
    [("1", 1), ("16Gi", 16 << 30), ("1k", 1000), ("1e3", 1000), ("500m", 1), ("2Mi", 2 << 20), ("1.5Ki", 1536)],
)
def test_amounts_are_read_as_kubernetes_writes_them(text: str, number: int) -> None:
    assert whole(text) == number


def test_cpus_are_counted_in_thousandths() -> None:
    assert [milli(text) for text in ("1", "250m", "0.1", "100u")] == [1000, 250, 100, 1]


def test_pod_wants_what_its_containers_want_together_or_one_before_them_alone() -> None:
    value = pod_object(
        spec={
            "containers": [
                {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": "2"}}},
                {"resources": {"requests": {"cpu": "500m"}}},
            ],
            "initContainers": [{"resources": {"requests": {"cpu": "4"}}}],
            "overhead": {"cpu": "250m"},
        }
    )

    wants = pod_of(value, USUAL).wants

    assert (wants.device_milli, wants.cpu_milli, wants.memory_bytes) == (2000, 4250, 1 << 30)


def test_selectors_and_affinity_become_requirements_and_a_model_becomes_a_type() -> None:
    term = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    selector = {"zone": "a", "nvidia.com/gpu.product": "A100"}

    wants = pod_of(pod_object(spec={"nodeSelector": selector, "affinity": affinity}), USUAL).wants

    assert wants.requires == ((Requirement("zone", "In", ("a",)), Requirement("disk", "Exists")),)
    assert wants.device_types == ("A100",)


@pytest.mark.parametrize(
    ("terms", "nodes"),
    [
        pytest.param(
            [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}], ["n2"], id="name"
        ),
        pytest.param([{}], [], id="a-term-that-asks-for-nothing"),
        pytest.param([{}, {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}], ["n1"], id="one-of-two"),
        pytest.param([], ["n1", "n2"], id="no-terms"),
    ],
)
def test_affinity_lets_the_nodes_do_that_kubernetes_would(terms: list[Any], nodes: list[str]) -> None:
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    wants = pod_of(pod_object(spec={"affinity": affinity}), USUAL).wants
    there = [
        node_seen(node_object("n1", labels={"disk": "ssd", "kubernetes.io/hostname": "n2"}), USUAL).node,
        node_seen(node_object("n2", labels={"kubernetes.io/hostname": "host-2"}), USUAL).node,
    ]

    assert [node.id for node in there if is_met(wants.requires, dict(node.labels))] == nodes


def test_tolerations_that_every_pod_is_given_are_left_out() -> None:
    given = [
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        {"key": "dedicated", "value": "ml", "effect": "NoSchedule"},
        {"operator": "Exists"},
    ]

    wants = pod_of(pod_object(spec={"tolerations": given}), USUAL).wants

    assert wants.tolerates == (Toleration("dedicated:NoSchedule", "ml"), Toleration(None, None))


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        pytest.param(
            {"volumes": [{"name": "disk", "awsElasticBlockStore": {"volumeID": "v"}}]},
            "awsElasticBlockStore",
            id="volume",
        ),
        pytest.param({"workloadRef": {"name": "w", "podGroup": "g"}}, "its Workload", id="workload"),
        pytest.param(
            {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1", "amd.com/gpu": "1"}}}]},
            "nvidia.com/gpu and amd.com/gpu",
            id="two kinds",
        ),
    ],
)
def test_wishes_that_are_not_known_are_refused_by_name(spec: dict[str, Any], word: str) -> None:
    assert word in pod_of(pod_object(spec=spec), USUAL).wants.refused


def test_node_is_read_with_its_place_its_devices_and_what_keeps_tasks_off() -> None:
    labels = {
        "nvidia.com/gpu.product": "H100",
        "nvidia.com/gpu.memory": "81920",
        "topology.kubernetes.io/zone": "z1",
        "rota.dev/rack": "r7",
        "rota.dev/sockets": "4-4",
    }
    taints = [
        {"key": "dedicated", "value": "ml", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "soft", "effect": "PreferNoSchedule"},
    ]

    seen = node_seen(node_object(labels=labels, spec={"taints": taints, "unschedulable": True}), USUAL)

    node = seen.node
    assert (node.device_type, node.devices, node.sockets, node.device_memory_bytes) == ("H100", 8, (4, 4), 80 << 30)
    assert (node.domain, node.rack, node.cpu_milli, node.memory_bytes) == ("z1", "z1/r7", 63500, 1 << 30)
    assert node.taints == (Taint("dedicated:NoSchedule", "ml"),)
    assert (seen.ready, seen.cordoned) == (True, True)


def test_node_without_devices_and_one_that_does_not_answer() -> None:
    seen = node_seen(node_object(gpus=0, ready=False), USUAL)

    assert (seen.node.device_type, seen.node.devices, seen.ready) == ("cpu", 0, False)


@pytest.mark.parametrize(
    ("value", "source", "name"),
    [
        pytest.param(pod_object("a", uid="u1"), GangSource.POD, "u1", id="alone"),
        pytest.param(pod_object("a", owner=("Job", "train")), GangSource.OWNER, "uid-of-train", id="Job"),
        pytest.param(pod_object("a", uid="u1", owner=("ReplicaSet", "web")), GangSource.POD, "u1", id="ReplicaSet"),
        pytest.param(pod_object("a", labels={"rota.dev/job": "bert"}), GangSource.LABEL, "bert", id="label"),
        pytest.param(pod_object("a", labels={"rota.dev/pod-group": "g"}), GangSource.GROUP, "g", id="PodGroup"),
        pytest.param(
            pod_object("a", labels={"jobset.sigs.k8s.io/jobset-name": "s"}), GangSource.JOB_SET, "s", id="JobSet"
        ),
    ],
)
def test_gangs_are_told_apart_by_what_their_pods_have_in_common(value: Any, source: GangSource, name: str) -> None:
    key = key_of(pod_of(value, USUAL))

    assert (key.source, key.name) == (source, name)


def test_size_is_what_the_pod_says_and_one_for_who_is_alone() -> None:
    labelled = pod_of(pod_object(labels={"rota.dev/job": "b", "rota.dev/tasks": "4"}), USUAL)
    alone = pod_of(pod_object(), USUAL)
    wrong = pod_of(pod_object(labels={"rota.dev/job": "b", "rota.dev/tasks": "many"}), USUAL)

    assert [stated_size(pod, key_of(pod)) for pod in (labelled, alone, wrong)] == [4, 1, None]


@pytest.mark.parametrize(
    ("value", "tasks"),
    [
        pytest.param({"kind": "Job", "apiVersion": "batch/v1", "spec": {"parallelism": 4}}, 4, id="Job"),
        pytest.param(
            {"kind": "Job", "apiVersion": "batch/v1", "spec": {"parallelism": 4, "completions": 3}}, 3, id="short Job"
        ),
        pytest.param(
            {
                "kind": "JobSet",
                "spec": {"replicatedJobs": [{"replicas": 2, "template": {"spec": {"parallelism": 3}}}]},
            },
            6,
            id="JobSet",
        ),
        pytest.param(
            {
                "kind": "PyTorchJob",
                "spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 7}}},
            },
            8,
            id="PyTorchJob",
        ),
        pytest.param({"kind": "RayCluster", "spec": {"workerGroupSpecs": [{"replicas": 3}]}}, 4, id="RayCluster"),
        pytest.param({"kind": "PodGroup", "spec": {"minMember": 5}}, 5, id="PodGroup"),
        pytest.param({"kind": "Surprise", "spec": {}}, None, id="unknown"),
    ],
)
def test_size_is_read_off_controllers_that_are_known(value: Any, tasks: int | None) -> None:
    assert tasks_of(value) == tasks


def _job(spec: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    return {"kind": "Job", "metadata": {"name": "a"}, "spec": {"parallelism": 2, **(spec or {})}, "status": status}


@pytest.mark.parametrize(
    ("value", "owes"),
    [
        pytest.param(_job(), True, id="it has made none yet"),
        pytest.param(_job(active=1, failed=3), True, id="it waits until it makes one again"),
        pytest.param(_job(active=2), False, id="it has all"),
        pytest.param(_job({"completions": 5}, succeeded=4, active=1), False, id="one is left, and there"),
        pytest.param(_job({"completions": 5}, succeeded=4), True, id="one is left"),
        pytest.param(_job({"suspend": True}), False, id="suspended"),
        pytest.param(_job({"parallelism": 0}), False, id="it wants none"),
        pytest.param(_job(conditions=[{"type": "Failed", "status": "True"}]), False, id="given up"),
        pytest.param({**_job(), "metadata": {"deletionTimestamp": "now"}}, False, id="being deleted"),
        pytest.param({**_job(), "kind": "ReplicaSet"}, False, id="another kind makes its pods at once"),
        pytest.param(_job(active="many"), False, id="nonsense"),
    ],
)
def test_job_that_owes_pods_is_waited_for(value: dict[str, Any], owes: bool) -> None:
    assert owes_pods(value) is owes


def test_pods_that_ask_for_different_things_are_roles_of_one_job() -> None:
    labels = {"rota.dev/job": "train"}
    values = [
        pod_object("train-worker-0", gpus=8, labels=labels),
        pod_object("train-worker-1", gpus=8, labels=labels),
        pod_object("train-ps-0", gpus=0, labels={**labels, "rota.dev/role": "ps"}, spec={"priority": 7}),
    ]
    pods = [pod_of(value, USUAL) for value in values]
    gang = Gang(key_of(pods[0]), members={pod.uid: pod for pod in pods})

    job = job_of(gang, pods, ClusterSettings(tenant_label="team"), JobId("x"))

    assert [(role.name, role.count, role.device_milli) for role in job.roles] == [("ps", 1, 0), ("worker", 2, 8000)]
    assert (job.tenant, job.name) == ("default", "train")


def test_priority_below_zero_is_opportunistic_and_tenants_come_from_labels() -> None:
    pod = pod_of(pod_object(labels={"team": "nlp"}, spec={"priority": -50}), USUAL)
    gang = Gang(key_of(pod), members={pod.uid: pod})

    job = job_of(gang, [pod], ClusterSettings(tenant_label="team"), job_id(gang, [pod]))

    assert (job.priority, job.tenant, job.id) == (-1, "nlp", "p-uid-of-p")


def test_settings_name_the_field_that_is_wrong() -> None:
    with pytest.raises(RotaError, match="unknown field polcy; did you mean 'policy'"):
        read_settings("polcy: fifo", "ConfigMap rota")
    with pytest.raises(RotaError, match="gang_timeout"):
        read_settings("gang_timeout: soon", "ConfigMap rota")


def test_rights_that_a_replica_does_not_use_are_not_asked_for() -> None:
    alone = needed_rights("ns", config_map=None, lease=None, pod="p")
    named = needed_rights("ns", config_map="other", lease="turn", pod=None)

    assert not any(right.namespace for right in alone)
    assert [str(right) for right in named[len(alone) :]] == [
        "list configmaps 'other' in namespace ns",
        "watch configmaps 'other' in namespace ns",
        "get leases.coordination.k8s.io 'turn' in namespace ns",
        "update leases.coordination.k8s.io 'turn' in namespace ns",
        "create leases.coordination.k8s.io in namespace ns",
    ]


HIVED = "hivedscheduler.microsoft.com/pod-scheduling-spec"


def test_pod_of_hived_says_tenant_priority_devices_and_gang() -> None:
    asked = (
        "{virtualCluster: vc1, priority: 7, leafCellType: A100, leafCellNumber: 2, "
        "affinityGroup: {name: g, members: [{podNumber: 3, leafCellNumber: 2}]}}"
    )
    pod = pod_of(pod_object(gpus=0, annotations={HIVED: asked}), ClusterSettings(hived_pods=True))
    gang = Gang(key_of(pod), members={pod.uid: pod})

    job = job_of(gang, [pod] * 3, ClusterSettings(), JobId("x"))

    assert (job.tenant, job.priority, job.name) == ("vc1", 7, "g")
    assert [(role.count, role.device_milli, role.device_types) for role in job.roles] == [(3, 2000, ("A100",))]
    assert stated_size(pod, key_of(pod)) == 3


def test_pod_can_not_promote_itself() -> None:
    own = {"rota.dev/priority": "900", "rota.dev/tenant": "rich", "rota.dev/gpus": "0"}
    pod = pod_of(pod_object(annotations=own), USUAL)
    gang = Gang(key_of(pod), members={pod.uid: pod})

    job = job_of(gang, [pod], USUAL, JobId("x"))

    assert (job.priority, job.tenant, job.roles[0].device_milli) == (0, "default", 1000)


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ("{priority: 1, leafCellNumber: 1}", "virtualCluster"),
        ("{virtualCluster: a, priority: 2000, leafCellNumber: 1}", "priority is 2000"),
        ("{virtualCluster: a, leafCellNumber: 0}", "leafCellNumber is 0"),
        ("][", "not YAML"),
    ],
)
def test_mistake_in_hiveds_annotation_is_named(asked: str, word: str) -> None:
    pod = pod_of(pod_object(annotations={HIVED: asked}), ClusterSettings(hived_pods=True))

    assert word in pod.wants.refused
