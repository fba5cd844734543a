"""Queue, Topology and SchedulingPolicy objects as settings: what they say, what is left out, and why."""

from __future__ import annotations

from typing import Any

import pytest

from drivers.kubernetes.objects import pod_object
from rota.core.errors import RotaError
from rota.drivers.kubernetes.objects.reading import read_pod
from rota.drivers.kubernetes.objects.topology_request import topology_of
from rota.drivers.kubernetes.resources.reading import Merged, merged, refusal_of
from rota.drivers.kubernetes.resources.types import resource_types
from rota.drivers.kubernetes.settings import ClusterSettings

Json = dict[str, Any]


def made(kind: str, name: str, namespace: str = "", *, at: str = "2026-01-01T00:00:00Z", **spec: Any) -> Json:
    meta = {"name": name, "creationTimestamp": at, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": "rota.dev/v1alpha1", "kind": kind, "metadata": meta, "spec": spec}


def queue(name: str, namespace: str = "nlp", **spec: Any) -> Json:
    return made("Queue", name, namespace, **spec)


def why(found: Merged) -> dict[str, str]:
    return {f"{key.namespace}/{key.name}".lstrip("/"): text for key, text in found.refused.items()}


def test_queues_become_tenants_of_their_namespaces() -> None:
    base = ClusterSettings(tenants={"lab": {"gpus": 24}})  # type: ignore[dict-item]
    found = merged(
        base,
        [
            queue("nlp", guaranteed={"v100": 16}, parent="lab", perUser=8, weight=2),
            queue("bert", parent="nlp", guaranteed={"*": 4}, borrowing=False),
            queue("vision", "vision", guaranteed={"*": 8}, limit={"*": 12}),
        ],
    )

    settings = found.settings
    assert found.refused == {}
    assert settings.tenancy == "quota"
    assert settings.queues == {"nlp": ("bert", "nlp"), "vision": ("vision",)}
    plan = settings.promises()[1]
    assert plan is not None
    shares = {str(name): share for name, share in plan.shares.items()}
    assert (shares["nlp"].guaranteed, shares["nlp"].parent, shares["nlp"].per_user) == ({"v100": 16}, "lab", 8)
    assert (shares["bert"].limit, shares["vision"].limit) == ({"*": 4}, {"*": 12})


def test_what_makes_no_sense_is_left_out_and_says_why() -> None:
    found = merged(
        ClusterSettings(),
        [
            queue("good", guaranteed={"*": 4}),
            queue("less", guaranteed={"*": 4}, limit={"*": 2}),
            queue("orphan", parent="god"),
            queue("below", parent="orphan"),
            queue("a", parent="b"),
            queue("b", parent="a"),
            made("Queue", "good", "vision", at="2026-02-01T00:00:00Z"),
            queue("typo", garanteed={"*": 1}),
            made("SchedulingPolicy", "second", policy="las"),
            made("Topology", "twice", levels=[{"nodeLabel": name} for name in "aba"]),
        ],
    )

    assert set(found.settings.tenants) == {"good"}
    assert why(found) == {
        "nlp/less": "limit.* is 2, less than the 4 guaranteed; raise it",
        "nlp/orphan": "parent is 'god'; did you mean 'good'?",
        "nlp/below": "parent is 'orphan'; did you mean 'good'?",
        "nlp/a": "parent: 'a' is above itself; Queues must form a tree",
        "nlp/b": "parent: 'b' is above itself; Queues must form a tree",
        "vision/good": "Queue good exists already, in namespace nlp; choose another name",
        "nlp/typo": "Queue typo: unknown field garanteed; did you mean 'guaranteed'?",
        "second": "the name is 'second'; a cluster has one SchedulingPolicy, named default",
        "twice": "levels names node label a twice",
    }


def test_policy_and_topology_replace_parts_of_the_config_map() -> None:
    base = ClusterSettings(policy="fifo", linger=7.0)
    found = merged(
        base,
        [
            made("SchedulingPolicy", "default", policy="las", gangTimeout="2m", fairness={"minRun": "10m"}),
            made("Topology", "t", levels=[{"nodeLabel": "block"}, {"nodeLabel": "kubernetes.io/hostname"}]),
        ],
    )

    settings = found.settings
    assert (settings.policy, settings.gang_timeout, settings.linger) == ("las", 120.0, 7.0)
    assert (settings.fairness.min_run, settings.fairness.half_life) == (600.0, base.fairness.half_life)
    assert (settings.labels.rack, settings.labels.zone) == ("block", base.labels.zone)
    assert settings.topology == ("block", "kubernetes.io/hostname")
    assert merged(base, []).settings == base


def test_topology_has_any_number_of_levels_which_pods_may_name() -> None:
    levels = ["block", "rack", "nvlink", "kubernetes.io/hostname"]
    settings = merged(
        ClusterSettings(), [made("Topology", "t", levels=[{"nodeLabel": each} for each in levels])]
    ).settings
    assert settings.topology == tuple(levels)
    assert (settings.labels.zone, settings.labels.rack) == ("block", "rack")
    near = read_pod(pod_object(annotations={"rota.dev/topology-preferred": "nvlink"}), settings)
    wrong = read_pod(pod_object(annotations={"rota.dev/topology-required": "nvlnk"}), settings)
    assert near is not None
    assert wrong is not None
    assert topology_of(near, settings.topology).preferred == ("nvlink", "rack", "block")
    with pytest.raises(RotaError, match="no level of `topology`; did you mean 'nvlink'"):
        topology_of(wrong, settings.topology)


@pytest.mark.parametrize("spec", [None, 7, [], {"guaranteed": "many"}, {"weight": 0}, {"parent": ["x"]}])
def test_any_spec_is_refused_by_name_or_taken(spec: Any) -> None:
    value = {"kind": "Queue", "metadata": {"name": "q", "namespace": "n"}, "spec": spec}
    said = refusal_of(value)
    assert bool(said) == (spec not in (None, []))
    assert "\n" not in said


def test_definitions_have_rules_where_the_release_has_them() -> None:
    assert "x-kubernetes-validations" in repr(resource_types())
    assert "x-kubernetes-validations" not in repr(resource_types((1, 24)))
