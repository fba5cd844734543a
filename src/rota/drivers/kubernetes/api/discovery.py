"""Which versions of an API group a server offers."""

from __future__ import annotations

from rota.drivers.kubernetes.api.client import Api, ApiRefused

_GONE = 404


async def versions_of(api: Api, group: str) -> tuple[str, ...]:
    """Return the versions of an API group that the server serves, the preferred one first; none without the group."""
    try:
        found = await api.get(f"/apis/{group}")
    except ApiRefused as error:
        if error.status == _GONE:
            return ()
        raise
    return tuple(str(each["version"]) for each in found.get("versions") or ())
