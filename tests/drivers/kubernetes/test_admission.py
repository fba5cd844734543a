"""Admission without a server: mistakes in the words of `rota check`, patches of defaults, certificates over years."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import tempfile
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as some

from e2e.kubernetes.replica import gang, job, pod
from rota.cli.main import status
from rota.drivers.kubernetes.admission import server as admission_server
from rota.drivers.kubernetes.admission.certificates import CertificateSet, decode_certificates, renewed, serving_until
from rota.drivers.kubernetes.admission.mistakes import mistakes_in, warnings_in
from rota.drivers.kubernetes.admission.review import NotAReview, defaulted, validated
from rota.drivers.kubernetes.api.client import Api, ApiRefused, Unreachable
from rota.drivers.kubernetes.settings import ClusterSettings

Json = dict[str, Any]
USUAL = ClusterSettings()
DAY = timedelta(days=1)
BAD = {"rota.dev/time-limit": "2 hourz"}


def review(value: Json, operation: str = "CREATE", old: Json | None = None) -> Json:
    request = {"uid": "u", "operation": operation, "object": value, "oldObject": old, "namespace": "nlp"}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def patched(answer: Json) -> Any:
    return json.loads(base64.b64decode(answer["response"]["patch"]))


CASES = {
    "a number": (pod("x", notes={"rota.dev/tasks": "-1"}), "rota.dev/tasks is '-1'; write a whole number"),
    "a duration": (pod("x", notes=BAD), "rota.dev/time-limit is not a duration: '2 hourz'; write it like 90, 10m"),
    "a level": (pod("x", notes={"rota.dev/locality": "rak"}), "did you mean 'rack'?"),
    "memory": (pod("x", notes={"rota.dev/gpu-memory": "lots"}), "rota.dev/gpu-memory is 'lots'; write it like 40Gi"),
    "a job's template": (job("x", 2, notes=BAD), "spec.template: "),
    "a queue": (pod("x", labels={"rota.dev/queue": "nlp"}), "rota.dev/queue is 'nlp'; namespace default has: no Queue"),
}


@pytest.mark.parametrize(("value", "words"), CASES.values(), ids=CASES)
def test_a_mistake_has_the_same_words_at_apply_and_in_check(
    value: Json, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = validated(review({**value, "metadata": {**value["metadata"], "namespace": "default"}}), USUAL)
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump_all([pod("fine"), value]))
    assert status(["check", str(file), "-o", "json"]) == 1

    said = mistakes_in(value, USUAL)
    assert len(said) == 1
    assert words in said[0]
    assert not answer["response"]["allowed"]
    assert answer["response"]["status"]["message"].replace("namespace nlp", "namespace default") == said[0]
    assert [each["finding"] for each in json.loads(capsys.readouterr().out)] == [f"{value['kind']} x: {said[0]}"]


def test_what_is_right_or_of_others_is_let_in() -> None:
    right = [pod("x"), job("x", 4), *gang("g", 2), pod("x", notes=BAD, schedulerName="default-scheduler"), {}, None, 7]
    for value in right:
        assert mistakes_in(value, USUAL) == []


def test_an_object_with_an_old_mistake_can_be_changed_but_gets_no_new_one() -> None:
    old = pod("x", notes=BAD)
    worse = pod("x", notes={**BAD, "rota.dev/tasks": "x"})

    assert validated(review(old, "UPDATE", old), USUAL)["response"]["allowed"]
    assert not validated(review(worse, "UPDATE", old), USUAL)["response"]["allowed"]


@pytest.mark.parametrize("name", ["devices", "placement", "seat", "size", "id", "late", "gpu-fraction"])
def test_what_rota_wrote_onto_a_bound_pod_stays(name: str) -> None:
    held = {"rota.dev/devices": "0", "rota.dev/placement": "[]", "rota.dev/id": "x-1"}
    forged = {**held, f"rota.dev/{name}": "0.9"}
    words = f"rota.dev/{name} was written with the pod's binding and can't be changed"

    def answer(old: Json, new: Json, **spec: Any) -> Json:
        before, after = pod("x", notes=old, **spec), pod("x", notes=new, **spec)
        found: Json = validated(review(after, "UPDATE", before), USUAL)["response"]
        return found

    assert words in answer(held, forged, nodeName="n1")["status"]["message"]
    without = {each: value for each, value in forged.items() if each != f"rota.dev/{name}"}
    assert words in answer(forged, without, nodeName="n1")["status"]["message"]
    assert answer(forged, {**forged, "example.com/x": "y"}, nodeName="n1")["allowed"]
    assert answer(held, forged, nodeName="n1", schedulerName="other")["allowed"]
    assert "was written" not in str(answer(held, forged))


def test_misspelt_names_are_warned_of() -> None:
    value = pod("x", notes={"rota.dev/localty": "rack", "example.com/localty": "x", "rota.dev/of-a-later-version": "x"})

    words = "rota.dev/localty is not known and has no effect; did you mean 'rota.dev/locality'?"
    assert warnings_in(value, USUAL) == [words]
    assert validated(review(value), USUAL)["response"] == {"uid": "u", "allowed": True, "warnings": [words]}


def test_defaults_fill_gaps_only() -> None:
    settings = ClusterSettings(defaults={"time-limit": "2h", "class": "opportunistic"})
    bare = pod("x")
    del bare["metadata"]["annotations"]

    assert patched(defaulted(review(bare), settings)) == [
        {
            "op": "add",
            "path": "/metadata/annotations",
            "value": {"rota.dev/time-limit": "2h", "rota.dev/class": "opportunistic"},
        }
    ]
    said = pod("x", notes={"rota.dev/time-limit": "1h"}, labels={"rota.dev/class": "guaranteed"})
    assert "patch" not in defaulted(review(said), settings)["response"]
    assert "patch" not in defaulted(review(bare, "UPDATE"), settings)["response"]
    assert "patch" not in defaulted(review(pod("x", schedulerName="other")), settings)["response"]
    one = defaulted(review(pod("x", notes={"rota.dev/class": "x"})), settings)
    assert patched(one) == [{"op": "add", "path": "/metadata/annotations/rota.dev~1time-limit", "value": "2h"}]


JSON_VALUES = some.recursive(
    some.none() | some.booleans() | some.floats() | some.text(max_size=8) | some.integers(),
    lambda inner: (
        some.lists(inner, max_size=3)
        | some.dictionaries(
            some.sampled_from(
                ["kind", "spec", "metadata", "annotations", "labels", "containers", "template", "uid", "x"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(value=JSON_VALUES, request=JSON_VALUES)
def test_no_object_breaks_a_review(value: Any, request: Any) -> None:
    answer = validated({"request": {"uid": "u", "object": value, "operation": "CREATE"}}, USUAL)
    assert answer["response"]["uid"] == "u"
    defaulted({"request": {"uid": "u", "object": value, "operation": "CREATE"}}, USUAL, takes_over=True)
    mistakes_in({"kind": "Pod", "spec": {"schedulerName": "rota", "containers": value}, "metadata": request}, USUAL)
    if not (isinstance(request, dict) and isinstance(request.get("uid"), str)):
        with pytest.raises(NotAReview):
            validated({"request": request}, USUAL)


# -- certificates -----------------------------------------------------------------------------------------------------


def is_trusted(certificates: CertificateSet, bundle: str) -> bool:
    """Whether a client with this bundle accepts the serving certificate, as OpenSSL sees it."""
    client = ssl.create_default_context(cadata=bundle)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile("w") as pair:
        pair.write(certificates.serving + certificates.serving_key)
        pair.flush()
        server.load_cert_chain(pair.name)
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="rota-admission.rota-system.svc"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    done = [False, False]
    for _ in range(6):
        for number, end in enumerate(ends):
            if not done[number]:
                try:
                    end.do_handshake()
                    done[number] = True
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLCertVerificationError:
                    return False
    return all(done)


NAMES = ["rota-admission.rota-system.svc", "127.0.0.1"]


def test_certificates_are_never_out_of_date_and_always_trusted_by_the_bundle_before() -> None:
    now = datetime.now(UTC) - timedelta(days=700)
    held = renewed(None, NAMES, life_s=30 * 86400.0, now=now)
    servings, authorities, bundle = {held.serving}, {held.authority}, held.bundle
    for _ in range(700):
        now += DAY
        held = renewed(decode_certificates(held.encode()), NAMES, life_s=30 * 86400.0, now=now)
        assert serving_until(held) - now >= 9 * DAY
        if held.serving not in servings and now > datetime.now(UTC) - timedelta(days=15):
            assert is_trusted(held, bundle)  # the API server knows the bundle of the day before
        servings.add(held.serving)
        authorities.add(held.authority)
        bundle = held.bundle
    assert 33 <= len(servings) <= 37
    assert 3 <= len(authorities) <= 4
    assert is_trusted(held, held.bundle)
    assert not is_trusted(held, renewed(None, NAMES, life_s=86400.0).bundle)


def test_a_new_authority_does_not_end_the_trust_in_the_present_certificate() -> None:
    now, life_s = datetime.now(UTC), 86400.0
    first = renewed(None, NAMES, life_s=life_s, now=now - 8.05 * DAY)
    signed = renewed(first, NAMES, life_s=life_s, now=now - 0.1 * DAY)
    held = renewed(signed, NAMES, life_s=life_s, now=now)

    assert first.authority == signed.authority != held.authority
    assert first.serving != signed.serving == held.serving
    assert is_trusted(held, held.bundle)


def test_damaged_or_foreign_certificates_are_made_again() -> None:
    held = renewed(None, NAMES, life_s=86400.0)
    assert decode_certificates({}) is None
    assert decode_certificates({**held.encode(), "tls.key": base64.b64encode(b"no key").decode()}) is None
    assert renewed(held, NAMES, life_s=86400.0) == held
    assert renewed(held, [*NAMES, "other.example"], life_s=86400.0).serving != held.serving
    later = datetime.now(UTC) + timedelta(days=400)
    assert renewed(held, NAMES, life_s=86400.0, now=later).authority != held.authority


class LateServer:
    """An API server that answers from the third question on, and has neither certificates nor webhooks."""

    def __init__(self) -> None:
        self.asked = 0

    async def get(self, path: str) -> Json:
        self.asked += 1
        raise Unreachable("nobody answers") if self.asked <= 2 else ApiRefused(404, "NotFound", path)

    async def post(self, path: str, value: Json) -> Json:
        return value


def test_webhook_waits_for_an_api_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission_server, "AGAIN_S", 0.0)

    async def course() -> None:
        said = asyncio.Event()
        options = admission_server.AdmissionOptions(host="127.0.0.1", port=0)
        api = cast(Api, LateServer())
        server = admission_server.AdmissionServer(api, "ns", options, lambda: USUAL, lambda settings: None)
        running = asyncio.create_task(server.run(lambda line: said.set()))
        done, _ = await asyncio.wait([running, asyncio.create_task(said.wait())], return_when=asyncio.FIRST_COMPLETED)
        assert running not in done
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    asyncio.run(course())
