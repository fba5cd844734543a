"""The admission webhook behind a real API server: refusals, defaults, renewed certificates, failure by setting."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cryptography import x509

from e2e.kubernetes.bed import Bed, KubeError
from e2e.kubernetes.hollow import node_object
from e2e.kubernetes.replica import Replica, configure, job, pod
from managers import eventually
from rota.drivers.kubernetes.install.webhooks import REGISTRATION, webhook_configurations

pytestmark = pytest.mark.slow
Launch = Callable[..., Replica]
Json = dict[str, Any]
SERVED = ["--admission-port", "0", "--admission-url", "https://127.0.0.1:0"]
CONFIGURATIONS = [
    f"/apis/{REGISTRATION}/{kind}/rota" for kind in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
]
SECRET = "/api/v1/namespaces/rota-system/secrets/rota-admission"


@pytest.fixture
def reviewed(bed: Bed) -> Iterator[Bed]:
    """A control plane that knows the webhook; it forgets it afterwards."""
    bed.admin.make(node_object("n1"))
    for value in webhook_configurations("rota-system"):
        bed.admin.make(value)
    yield bed
    for path in (*CONFIGURATIONS, SECRET):
        with contextlib.suppress(KubeError):
            bed.admin.delete(path)


def registered(bed: Bed) -> list[Json]:
    """The webhooks, once all of them have a certificate's authority."""
    found = [each for path in CONFIGURATIONS for each in bed.admin.get(path)["webhooks"]]
    return found if all(each["clientConfig"].get("caBundle") for each in found) else []


def refusal(bed: Bed, value: Json) -> str:
    """What the API server answers to an object that is applied; empty if it takes it."""
    try:
        bed.admin.make(value)
    except KubeError as error:
        return str(error)
    return ""


def notes_of(bed: Bed, name: str) -> Json:
    found: Json = bed.admin.get(f"/api/v1/namespaces/default/pods/{name}")["metadata"].get("annotations") or {}
    return found


def test_mistakes_fail_when_applied_and_defaults_are_set(reviewed: Bed, launch: Launch) -> None:
    bed = reviewed
    configure(bed, defaults={"time-limit": "2h", "class": "opportunistic"}, admission={"failure": "closed"})
    replica = launch(bed, options=[*SERVED, "--no-leader-election"])
    eventually(lambda: registered(bed))

    bad = {"rota.dev/tasks": "²"}
    words = "rota.dev/tasks is '²'; write a whole number from 1 to 100000"
    assert words in eventually(lambda: refusal(bed, pod("bad", notes=bad)))
    assert f"spec.template: {words}" in refusal(bed, job("bad", 2, notes=bad))
    assert "rota.dev/locality is 'rak'; did you mean 'rack'?" in refusal(
        bed, pod("b", notes={"rota.dev/locality": "rak"})
    )
    assert refusal(bed, pod("other", notes=bad, schedulerName="default-scheduler")) == ""
    wrong = {"kind": "ConfigMap", "apiVersion": "v1", "data": {"rota.yaml": "policy: lsa"}}
    meta = {"name": "mine", "namespace": "rota-system", "labels": {"app.kubernetes.io/name": "rota"}}
    assert "unknown policy 'lsa'; did you mean 'las'?" in refusal(bed, {**wrong, "metadata": meta})

    assert refusal(bed, pod("good", notes={"rota.dev/class": "guaranteed"})) == ""
    assert notes_of(bed, "good") == {"rota.dev/class": "guaranteed", "rota.dev/time-limit": "2h"}

    bed.admin.make({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "taken"}})
    bed.admin.patch("/api/v1/namespaces/taken", {"metadata": {"labels": {"rota.dev/takes-over": "true"}}})
    bed.admin.make(pod("asks", 1, namespace="taken", schedulerName="default-scheduler"))
    bed.admin.make(pod("does-not", 0, namespace="taken", schedulerName="default-scheduler"))
    found = {
        each["metadata"]["name"]: each["spec"]["schedulerName"]
        for each in bed.admin.items("/api/v1/namespaces/taken/pods")
    }
    assert found == {"asks": "rota", "does-not": "default-scheduler"}

    # closed: without a replica nothing gets in; what was let in can be deleted, and settings can be edited
    replica.kill()
    assert "failed calling webhook" in refusal(bed, pod("late"))
    bed.admin.delete("/api/v1/namespaces/default/pods/other", {"gracePeriodSeconds": 0})
    configure(bed, admission={"failure": "open"})
    second = launch(bed, options=[*SERVED, "--no-leader-election"])
    eventually(lambda: {each["failurePolicy"] for each in registered(bed)} == {"Ignore"})
    second.kill()
    assert refusal(bed, pod("late", notes=bad)) == ""


def test_certificates_are_renewed_before_they_expire_and_shared_by_replicas(reviewed: Bed, launch: Launch) -> None:
    bed = reviewed
    configure(bed)

    def serial() -> int:
        data = base64.b64decode(bed.admin.get(SECRET)["data"]["tls.crt"])
        return x509.load_pem_x509_certificate(data).serial_number

    short = ["--certificate-life", "9s", "--no-leader-election"]
    launch(bed, options=[*SERVED, *short])
    eventually(lambda: registered(bed))
    bad = pod("bad", notes={"rota.dev/tasks": "0"})
    eventually(lambda: refusal(bed, bad))
    seen = {serial()}
    before = bed.admin.get(SECRET)["data"]["ca.crt"]

    for _ in range(2):
        eventually(lambda: serial() not in seen)
        seen.add(serial())
        assert "rota.dev/tasks is '0'" in refusal(bed, bad)
    assert bed.admin.get(SECRET)["data"]["ca.crt"] == before

    # a Secret that is deleted, and a bundle that is overwritten, are both made again
    bed.admin.delete(SECRET)
    path = CONFIGURATIONS[0]
    value = bed.admin.get(path)
    value["webhooks"][0]["clientConfig"]["caBundle"] = None
    bed.admin.ask("PUT", path, value)
    eventually(lambda: registered(bed))
    assert "rota.dev/tasks is '0'" in eventually(lambda: refusal(bed, bad))
