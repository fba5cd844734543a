"""The admission webhook's HTTPS server. Every replica of Rota answers, whether it leads or not."""

from __future__ import annotations

import asyncio
import logging
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import orjson
from aiohttp import web

from rota.core.errors import RotaError, Unavailable
from rota.drivers.kubernetes.admission.certificates import CertificateSet, serving_until
from rota.drivers.kubernetes.admission.mistakes import CheckSettings
from rota.drivers.kubernetes.admission.registration import register, shared_certificates
from rota.drivers.kubernetes.admission.review import NotAReview, defaulted, validated
from rota.drivers.kubernetes.api.client import Api
from rota.drivers.kubernetes.api.rights import NAME
from rota.drivers.kubernetes.settings import ClusterSettings

log = logging.getLogger("rota.drivers.kubernetes")
Json = dict[str, Any]
LARGEST = 8 << 20
"""Bytes of a request; the API server's own objects are at most 3 MiB, and an update carries two."""
VALIDATE, DEFAULT, TAKE_OVER = "/validate", "/default", "/take-over"
SHORTEST_LIFE_S = 3.0
AGAIN_S = 1.0
"""Pause before a retry while the API server does not answer at the start."""
USUAL_LIFE_S = 30 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionOptions:
    """Where the webhook answers. `url` is its address for the API server where there is no Service."""

    host: str = "0.0.0.0"
    port: int = 9443
    url: str | None = None
    life_s: float = USUAL_LIFE_S
    """Life of a serving certificate."""
    every_s: float = 30.0
    """How often certificates and registrations are compared with what they should be."""


class AdmissionServer:
    """Answers reviews with the present settings, and keeps its certificate and registration up to date."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        options: AdmissionOptions,
        settings: Callable[[], ClusterSettings],
        check: CheckSettings,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._options = options
        self._settings = settings
        self._check = check
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self._now: CertificateSet | None = None
        self.refused = 0
        self.reviewed = 0

    async def run(self, say: Callable[[str], None] = lambda line: None) -> None:
        """Serve until cancelled."""
        while self._now is None:
            try:
                await self._refresh()
            except Unavailable as error:
                log.warning("the webhook has no certificate yet", extra={"why": str(error)})
                await asyncio.sleep(AGAIN_S)
        app = web.Application(client_max_size=LARGEST)
        app.router.add_post(VALIDATE, self._validate)
        app.router.add_post(DEFAULT, self._default)
        app.router.add_post(TAKE_OVER, self._take_over)
        app.router.add_get("/healthz", self._health)
        runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await runner.setup()
        try:
            site = web.TCPSite(runner, self._options.host, self._options.port, ssl_context=self._tls)
            try:
                await site.start()
            except OSError as error:
                raise RotaError(f"--admission-port: can't listen at port {self._options.port}: {error}") from error
            say(f"admission answers at port {runner.addresses[0][1]}")
            await self._keep(f"https://127.0.0.1:{runner.addresses[0][1]}")
        finally:
            await runner.cleanup()

    async def _keep(self, local: str) -> None:
        """Register, and from time to time compare everything with what it should be."""
        url = self._options.url
        if url is not None and urlsplit(url).port == 0:
            url = local
        while True:
            try:
                await self._refresh()
                assert self._now is not None
                closed = self._settings().admission.failure == "closed"
                await register(self._api, self._now.bundle, fails_closed=closed, url=url)
            except Unavailable as error:
                log.warning("the webhook could not be registered", extra={"why": str(error)})
            await asyncio.sleep(min(self._options.every_s, self._options.life_s / 6))

    async def _refresh(self) -> None:
        """Take the shared certificates into use; connections that are open keep theirs."""
        found = await shared_certificates(self._api, self._namespace, self._names(), self._options.life_s)
        if found == self._now:
            return
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as pair:
            pair.write(found.serving + found.serving_key)
            pair.flush()
            self._tls.load_cert_chain(pair.name)
        self._now = found
        log.info("the webhook has a certificate", extra={"until": serving_until(found).isoformat()})

    def _names(self) -> list[str]:
        """Return the names under which the API server reaches the webhook."""
        service = f"{NAME}-admission.{self._namespace}"
        names = [f"{service}.svc", service, f"{service}.svc.cluster.local"]
        host = None if self._options.url is None else urlsplit(self._options.url).hostname
        return names if host is None else [*names, host]

    async def _validate(self, request: web.Request) -> web.Response:
        def answer(review: Any) -> Json:
            made = validated(review, self._settings(), self._check)
            self.reviewed += 1
            self.refused += not made["response"]["allowed"]
            return made

        return await _answered(request, answer)

    async def _default(self, request: web.Request) -> web.Response:
        return await _answered(request, lambda review: defaulted(review, self._settings()))

    async def _take_over(self, request: web.Request) -> web.Response:
        return await _answered(request, lambda review: defaulted(review, self._settings(), takes_over=True))

    async def _health(self, request: web.Request) -> web.Response:
        return web.json_response({"state": "ok"})


async def _answered(request: web.Request, answer: Callable[[Any], Json]) -> web.Response:
    try:
        made = answer(orjson.loads(await request.read()))
    except (orjson.JSONDecodeError, NotAReview) as error:
        return web.json_response({"error": str(error)}, status=400)
    return web.Response(body=orjson.dumps(made), content_type="application/json")
