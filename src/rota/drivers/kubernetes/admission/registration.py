"""The webhook as the API server knows it: its configurations, and the Secret that its replicas share.

The manifests contain the configurations without a certificate and with open failure. The webhook itself completes them
with the authority of its certificate and with the failure policy of the settings, and repairs them when they change.
"""

from __future__ import annotations

import base64
import logging
from typing import Any

from rota.drivers.kubernetes.admission.certificates import CertificateSet, decode_certificates, renewed
from rota.drivers.kubernetes.api.client import Api, ApiRefused
from rota.drivers.kubernetes.api.rights import NAME

log = logging.getLogger("rota.drivers.kubernetes")
Json = dict[str, Any]
SECRET = f"{NAME}-admission"
KINDS = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
ALWAYS_OPEN = "settings.rota.dev"
"""The webhook of the settings never fails closed: they must be editable while Rota is away."""
_GONE, _CONFLICT = 404, 409


async def shared_certificates(api: Api, namespace: str, names: list[str], life_s: float) -> CertificateSet:
    """Return the certificates of the Secret, renewed and written back if they are due.

    When two replicas renew at once, the second finds a conflict and takes what the first has written.
    """
    path = f"/api/v1/namespaces/{namespace}/secrets"
    while True:
        try:
            secret = await api.get(f"{path}/{SECRET}")
        except ApiRefused as error:
            if error.status != _GONE:
                raise
            secret = None
        was = None if secret is None else decode_certificates(secret.get("data") or {})
        now = renewed(was, names, life_s=life_s)
        if now == was:
            return now
        meta: Json = {"name": SECRET, "namespace": namespace, "labels": {"app.kubernetes.io/name": NAME}}
        if secret is not None:
            meta["resourceVersion"] = secret["metadata"]["resourceVersion"]
        value = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "Opaque", "data": now.encode()}
        try:
            if secret is None:
                await api.post(path, value)
            else:
                await api.put(f"{path}/{SECRET}", value)
        except ApiRefused as error:
            if error.status != _CONFLICT:
                raise
            continue
        log.info("the webhook's certificate was renewed")
        return now


async def register(api: Api, bundle: str, *, fails_closed: bool, url: str | None) -> int:
    """Complete the configurations; return how many webhooks there are. `url` replaces the Service."""
    count = 0
    for kind in KINDS:
        path = f"/apis/admissionregistration.k8s.io/v1/{kind}/{NAME}"
        try:
            found = await api.get(path)
        except ApiRefused as error:
            if error.status != _GONE:
                raise
            continue
        before = [dict(each) for each in found.get("webhooks") or ()]
        found["webhooks"] = [_completed(each, bundle, fails_closed, url) for each in before]
        count += len(before)
        if found["webhooks"] != before:
            try:
                await api.put(path, found)
                log.info("the webhook was registered", extra={"kind": kind, "fails_closed": fails_closed})
            except ApiRefused as error:
                if error.status != _CONFLICT:  # another replica was quicker; the next round compares again
                    raise
    return count


def _completed(webhook: Json, bundle: str, fails_closed: bool, url: str | None) -> Json:
    client = {**webhook["clientConfig"], "caBundle": base64.b64encode(bundle.encode()).decode()}
    if url is not None:
        path = (client.pop("service", None) or {}).get("path") or "/" + client.get("url", "").rpartition("/")[2]
        client["url"] = url.rstrip("/") + path
    closes = fails_closed and webhook["name"] != ALWAYS_OPEN
    return {**webhook, "clientConfig": client, "failurePolicy": "Fail" if closes else "Ignore"}
