"""A manager's API as Python calls. Standard library only, so that commands and scripts start quickly."""

from __future__ import annotations

import http.client
import json
import os
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from rota.core.errors import RotaError, Unavailable
from rota.sdk.account_calls import AccountCalls
from rota.sdk.answers import Refused as Refused
from rota.sdk.answers import checked, is_open, logged_out, not_trusted, trusting
from rota.sdk.credentials import read_credentials
from rota.sdk.data_calls import DataCalls
from rota.sdk.place import ManagerAddress, find_manager

if TYPE_CHECKING:
    from rota.sdk.websocket import ClientSocket

Json = dict[str, Any]
CHUNK = 65536


class Client(AccountCalls, DataCalls):
    """The client of one manager: by address, or the one on this machine."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        cacert: str | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        named = url or os.environ.get("ROTA_SERVER")
        address = ManagerAddress(url=named) if named else find_manager()
        if address is None:
            raise Unavailable(
                "no manager runs on this machine; start one with `rota up`, or name one with --server URL"
            )
        found = address.url
        parts = urlsplit(found)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RotaError(f"server {found!r} is not a URL; write it like http://127.0.0.1:7650")
        self.url = found.rstrip("/")
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port or (443 if self._secure else 80)
        self._token = token or os.environ.get("ROTA_TOKEN")
        kept = None if self._token else read_credentials(self.url)
        self._is_kept = kept is not None
        """Whether the token is that of `rota login`."""
        self._token = self._token or kept
        self._cacert = cacert or os.environ.get("ROTA_CACERT") or address.cacert
        self._timeout_s = timeout_s
        self._kept: http.client.HTTPConnection | None = None

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def __del__(self) -> None:
        if getattr(self, "_kept", None) is not None:
            self.close()

    # -- jobs ------------------------------------------------------------------------------------

    def submit(self, files: Json | Sequence[Json], *, key: str | None = None, held: bool = False) -> list[str]:
        """Submit a job, or several together; return their ids."""
        headers = {"Idempotency-Key": key or os.urandom(16).hex()}  # so that it can be sent again if it got lost
        answer = self._call("POST", f"/jobs?held={str(held).lower()}", files, headers)
        return [str(name) for name in answer["ids"]]

    def jobs(self, *, all: bool = False, limit: int | None = None, **only: str | None) -> Iterator[Json]:
        """Yield jobs, newest first, page by page."""
        after: str | None = None
        left = limit
        while True:
            wanted = {"all": str(all).lower(), "limit": min(left or 1000, 1000), "after": after, **only}
            query = urlencode({name: value for name, value in wanted.items() if value is not None})
            page = self._call("GET", f"/jobs?{query}")
            yield from page["jobs"]
            after = page["next"]
            if left is not None:
                left -= len(page["jobs"])
            if after is None or left == 0:
                return

    def job(self, job_id: str) -> Json:
        """Return a job with all fields."""
        answer: Json = self._call("GET", f"/jobs/{quote(job_id, safe='')}")
        return answer

    def try_out(self, file: Json) -> Json:
        """Forecast when a job would start if it were submitted now."""
        answer: Json = self._call("POST", "/jobs?dry_run=true", file)
        return answer

    def why(self, job_id: str) -> Json:
        """Return why a job waits, and when it is expected to start."""
        answer: Json = self._call("GET", f"/jobs/{quote(job_id, safe='')}/why")
        return answer

    def resources(self, job_id: str) -> list[Json]:
        """Return the requested, estimated and used resources of a job's tasks."""
        found: list[Json] = self.get(f"/jobs/{quote(job_id, safe='')}/resources")
        return found

    def over_requested(self, days: float) -> list[Json]:
        """Return jobs of the last days that requested at least twice what they used."""
        found: list[Json] = self.get(f"/over-requested?days={days:g}")
        return found

    def act(self, job_id: str, action: str) -> Json:
        """`cancel`, `hold`, `release` or `requeue` a job."""
        answer: Json = self._call("POST", f"/jobs/{quote(job_id, safe='')}/{action}")
        return answer

    def act_on_all(self, action: str, *, ids: Sequence[str] = (), name: str | None = None, force: bool = False) -> Json:
        """`cancel`, `hold` or `release` jobs by ids or name, in one request; return those done and refused."""
        body: Json = {"action": action, "ids": list(ids), "name": name}
        if force:
            body["force"] = True
        answer: Json = self._call("POST", "/jobs/actions", body)
        return answer

    def update(self, job_id: str, changes: Json) -> Json:
        """Change fields of a job that waits or is held; null removes one."""
        answer: Json = self._call("PATCH", f"/jobs/{quote(job_id, safe='')}", changes)
        return answer

    def put_tenant(self, tenant: str, max_priority: Mapping[str, int], **limits: float | None) -> Json:
        """Add a tenant, or set its highest priority by role, and `max_time_s` and `max_gpus_per_job` of its jobs."""
        body = {"max_priority": dict(max_priority), **limits}
        answer: Json = self._call("PUT", f"/tenants/{quote(tenant, safe='')}", body)
        return answer

    def logs(self, job_id: str, *, follow: bool = False, **options: int | None) -> Iterator[bytes]:
        """Yield the output of a task; with `follow`, until the job has ended."""
        wanted = {"follow": str(follow).lower(), **{k: v for k, v in options.items() if v is not None}}
        with self._open("GET", f"/jobs/{quote(job_id, safe='')}/logs?{urlencode(wanted)}") as answer:
            while output := answer.read1(CHUNK):
                yield output

    def session(self, job_id: str, **asked: object) -> ClientSocket:
        """Open the socket of a session in a job's task; its first message says what to open."""
        from rota.sdk.websocket import HandshakeRefused, open_socket

        path = f"/api/v1/jobs/{quote(job_id, safe='')}/session?{urlencode(asked)}"
        try:
            return open_socket(self._connect(), f"{self._host}:{self._port}", path, self._headers())
        except HandshakeRefused as refused:
            if refused.status == 401 and self._is_kept:
                raise logged_out(refused.body) from None
            checked(refused.status, refused.body)
            raise AssertionError from None
        except ssl.SSLCertVerificationError as error:
            raise not_trusted(self.url, error) from error
        except OSError as error:
            raise Unavailable(f"the manager at {self.url} does not answer: {error}") from error

    def page_status(self, path: str) -> int:
        """Return the status with which a page of a job answers, by its path at the manager: `/proxy/JOB/PORT/`."""
        connection = self._connect()
        try:
            connection.request("GET", path, headers=self._headers() or {"Rota-Direct": "1"})
            return connection.getresponse().status
        except OSError as error:
            raise Unavailable(f"the manager at {self.url} does not answer: {error}") from error
        finally:
            connection.close()

    # -- sweeps ----------------------------------------------------------------------------------

    def start_sweep(self, file: Json) -> Json:
        """Start a sweep of the values of a sweep file; return it with its id."""
        answer: Json = self._call("POST", "/sweeps", file)
        return answer

    def sweeps(self, *, all: bool = False, tenant: str | None = None) -> list[Json]:
        """Return sweeps, newest first; with `all`, those that have ended too."""
        wanted = {"all": str(all).lower(), "tenant": tenant, "limit": 1000}
        query = urlencode({name: value for name, value in wanted.items() if value is not None})
        answer: Json = self._call("GET", f"/sweeps?{query}")
        found: list[Json] = answer["sweeps"]
        return found

    def sweep(self, sweep_id: str) -> Json:
        """Return a sweep with its trials and their curves."""
        answer: Json = self._call("GET", f"/sweeps/{quote(sweep_id, safe='')}")
        return answer

    def stop_sweep(self, sweep_id: str) -> Json:
        """End a sweep and cancel its trials."""
        answer: Json = self._call("POST", f"/sweeps/{quote(sweep_id, safe='')}/stop")
        return answer

    # -- the cluster -----------------------------------------------------------------------------

    def nodes(self) -> list[Json]:
        """Return the nodes."""
        answer: list[Json] = self._call("GET", "/nodes")
        return answer

    def gpus(self) -> list[Json]:
        """Return the GPUs of the manager's machine with their latest sample."""
        answer: list[Json] = self._call("GET", "/gpus")
        return answer

    def gpu_users(self, days: int) -> list[Json]:
        """Return the GPU hours of users in the last days, held and idle."""
        answer: list[Json] = self._call("GET", f"/gpus/users?days={days}")
        return answer

    def job_gpus(self, job_id: str) -> Json:
        """Return a job's GPUs over time, its energy and its warnings."""
        answer: Json = self._call("GET", f"/jobs/{quote(job_id, safe='')}/gpus")
        return answer

    def overview(self) -> Json:
        """Return a summary of devices, tenants and the last day."""
        answer: Json = self._call("GET", "/overview")
        return answer

    def drain(self, node_id: str, *, drained: bool = True) -> Json:
        """Drain a node, so that no new job starts there, or undrain it."""
        action = "drain" if drained else "undrain"
        answer: Json = self._call("POST", f"/nodes/{quote(node_id, safe='')}/{action}")
        return answer

    def repair(self, node_id: str) -> Json:
        """Note that the repair of a node has begun; passed checks bring it back."""
        answer: Json = self._call("POST", f"/nodes/{quote(node_id, safe='')}/repair")
        return answer

    def tenants(self) -> list[Json]:
        """Return the tenants and their jobs."""
        answer: list[Json] = self._call("GET", "/tenants")
        return answer

    def cluster(self) -> Json:
        """Return the nodes and the guarantees of tenants."""
        answer: Json = self._call("GET", "/cluster")
        return answer

    def change_cluster(self, file: Json, *, if_match: str | None = None, dry_run: bool = False) -> Json:
        """Change the cluster to a cluster file; return what changed."""
        headers = {} if if_match is None else {"If-Match": if_match}
        answer: Json = self._call("PUT", f"/cluster?dry_run={str(dry_run).lower()}", file, headers)
        return answer

    def journal(self, back: int = 0) -> Iterator[bytes]:
        """Yield the current segment of the journal, or the one `back` segments ago."""
        with self._open("GET", f"/journal?back={back}") as answer:
            while output := answer.read1(CHUNK):
                yield output

    def audit(self, limit: int, *, who: str | None = None, what: str | None = None) -> Iterator[Json]:
        """Yield entries of the audit log, newest first, page by page."""
        before: int | None = None
        while limit > 0:
            wanted = {"limit": min(limit, 1000), "before": before, "who": who, "what": what}
            query = urlencode({name: value for name, value in wanted.items() if value is not None})
            page: list[Json] = self._call("GET", f"/audit?{query}")
            yield from page
            if len(page) < min(limit, 1000):
                return
            limit, before = limit - len(page), page[-1]["n"]

    def get(self, path: str) -> Any:
        """Send a GET request to a path below /api/v1."""
        return self._call("GET", path)

    def post(self, path: str, body: object = None) -> Any:
        """Send a POST request to a path below /api/v1."""
        return self._call("POST", path, body)

    def delete(self, path: str) -> Any:
        """Send a DELETE request to a path below /api/v1."""
        return self._call("DELETE", path)

    # -- HTTP ------------------------------------------------------------------------------------

    def _connect(self) -> http.client.HTTPConnection:
        if self._secure:
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout_s, context=trusting(self._cacert)
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)

    def _headers(self) -> dict[str, str]:
        return {} if self._token is None else {"Authorization": f"Bearer {self._token}"}

    def _call(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Any:
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        kind = "application/octet-stream" if isinstance(body, bytes) else "application/json"
        given = {**self._headers(), **(headers or {}), "Content-Type": kind}
        for fresh in (False, True):
            kept, self._kept = self._kept, None
            reused = kept is not None and not fresh and is_open(kept)
            if kept is not None and not reused:
                kept.close()
            connection = kept if kept is not None and reused else self._connect()
            try:
                connection.request(method, f"/api/v1{path}", body=sent, headers=given)
                answer = connection.getresponse()
                content = answer.read()
            except ssl.SSLCertVerificationError as error:
                connection.close()
                raise not_trusted(self.url, error) from error
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if reused and not fresh and (method == "GET" or "Idempotency-Key" in given):
                    continue
                raise Unavailable(
                    f"the manager at {self.url} does not answer: {error or type(error).__name__}"
                ) from error
            self._kept = connection
            if answer.status == 401 and self._is_kept:
                raise logged_out(content)
            return checked(answer.status, content)
        raise AssertionError

    @contextmanager
    def _open(self, method: str, path: str) -> Iterator[http.client.HTTPResponse]:
        connection = self._connect()
        if connection.sock is None:
            connection.timeout = None  # no limit: a followed job may be silent
        try:
            connection.request(method, f"/api/v1{path}", headers=self._headers())
            answer = connection.getresponse()
            if answer.status == 401 and self._is_kept:
                raise logged_out(answer.read())
            if answer.status >= 400:
                checked(answer.status, answer.read())
            yield answer
        except ssl.SSLCertVerificationError as error:
            raise not_trusted(self.url, error) from error
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"the manager at {self.url} does not answer: {error or type(error).__name__}") from error
        finally:
            connection.close()
