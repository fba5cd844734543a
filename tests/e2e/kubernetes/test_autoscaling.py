"""What is missing, said and asked for: `rota why` names nodes, and a ProvisioningRequest exists while its job waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from e2e.kubernetes.bed import Bed
from e2e.kubernetes.hollow import Hollow, node_object
from e2e.kubernetes.replica import Replica, View, gang, pod, provisioning_type, rota
from managers import eventually
from rota.sdk.client import Client

pytestmark = pytest.mark.slow
Launch = Callable[..., Replica]
Kubelets = Callable[..., Hollow]
Json = dict[str, Any]
REQUESTS = "/apis/autoscaling.x-k8s.io/v1/namespaces/default/provisioningrequests"
TEMPLATES = "/api/v1/namespaces/default/podtemplates"


def test_two_more_nodes_would_start_it_and_two_more_nodes_do(
    bed: Bed, view: View, launch: Launch, kubelets: Kubelets
) -> None:
    bed.admin.make(provisioning_type())
    kubelets(bed, nodes=1, gpus=4)
    replica = launch(bed, {"policy": "fifo", "provisioning": {"request": True}})
    bed.admin.make(pod("busy", 4))
    eventually(lambda: view.node_of("busy"))
    for value in gang("wide", 2, 4):
        bed.admin.make(value)

    asked = eventually(lambda: bed.admin.items(REQUESTS), within_s=60, every_s=0.3)
    assert len(asked) == 1
    sets = asked[0]["spec"]["podSets"]
    assert [each["count"] for each in sets] == [2]
    template = bed.admin.get(f"{TEMPLATES}/{sets[0]['podTemplateRef']['name']}")["template"]
    assert template["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert template["spec"]["schedulerName"] == "rota"
    words = "two more nodes of type gpu would start it"
    eventually(lambda: words in rota(bed, "why", "wide").stdout, every_s=0.5)
    client = Client(replica.url)
    job_id = next(each["id"] for each in client.jobs() if each["name"] == "wide")
    assert client.why(job_id)["more_nodes"] == [{"type": "gpu", "nodes": 2, "devices": 4, "sentence": words}]

    bed.admin.make(node_object("n2", 4))
    eventually(lambda: "one more node of type gpu would start it" in repr(client.why(job_id)), every_s=0.5)
    bed.admin.make(node_object("n3", 4))
    eventually(lambda: len(view.bound("wide")) == 2)
    eventually(lambda: bed.admin.items(REQUESTS) == [] and bed.admin.items(TEMPLATES) == [])


def test_nothing_is_asked_for_where_no_node_would_help(
    bed: Bed, view: View, launch: Launch, kubelets: Kubelets
) -> None:
    bed.admin.make(provisioning_type())
    kubelets(bed, nodes=1, gpus=4)
    limited = {"tenancy": "quota", "tenants": {"default": {"gpus": 2, "limit": 2}}}
    replica = launch(bed, {"policy": "fifo", "provisioning": {"request": True}, **limited})
    bed.admin.make(pod("first", 2))
    eventually(lambda: view.node_of("first"))
    bed.admin.make(pod("second", 2))
    eventually(lambda: view.waiting_for("second").startswith("quota-used"))

    client = Client(replica.url)
    job_id = next(each["id"] for each in client.jobs() if each["name"] == "second")
    assert client.why(job_id)["more_nodes"] == []
    assert bed.admin.items(REQUESTS) == []
