"""Makes what the proxy to jobs needs, for a manager that runs tasks itself."""

from __future__ import annotations

from dataclasses import replace

from rota.api.proxy.places import ProxyNames, domain_of, open_key
from rota.api.proxy.visits import Visits
from rota.api.service import ProxyParts, Service


def with_proxy(service: Service, domain: str | None) -> Service:
    """Return the services with the proxy; without a domain, only callers with a token reach servers in jobs."""
    names = None if domain is None else ProxyNames(open_key(service.home), domain_of(domain))
    return replace(service, proxy=ProxyParts(names=names, visits=Visits()))
