"""Web pages that a job serves: its services by name, and any port, each at an origin of its own."""

from __future__ import annotations

import asyncio
from typing import Any

from nicegui import html

from rota.api.service import Service
from rota.core.model.job import JobId
from rota.store.data.artefacts import list_services
from rota.web.parts.basics import button, card

_OPEN = """() => {
  const port = document.getElementById('job-port').value.trim();
  if (/^[0-9]{1,5}$/.test(port)) window.open(`/proxy/%s/${port}/`, '_blank', 'noopener');
}"""


class JobPages:
    """A card with links to what a running job serves; hidden while it does not run."""

    def __init__(self, service: Service, job_id: JobId) -> None:
        self._service = service
        self._id = job_id
        self._shown: list[str] | None = None
        self._whole = html.div().classes("wide")
        with self._whole, card("Pages", "what the job serves to browsers"):
            if service.proxy is None or service.proxy.names is None:
                html.p(f"This manager has no domain for pages of jobs. `rota port-forward {job_id} PORT` reaches them.")
                self._links = html.div()
                return
            self._links = html.div().classes("filters")
            with html.div().classes("filters"):
                html.label("Port").props("for=job-port")
                html.input_(id="job-port").props("inputmode=numeric size=6 maxlength=5").classes("port-field")
                button("Open", "open_in_new").on("click", js_handler=_OPEN % job_id)
        self._whole.set_visibility(False)

    async def show(self, row: Any) -> None:
        """Show what the job serves now."""
        is_running = row.state == "running"
        self._whole.set_visibility(is_running)
        names = await asyncio.to_thread(list_services, self._service.home, self._id) if is_running else []
        if names == self._shown or self._service.proxy is None or self._service.proxy.names is None:
            return
        self._shown = names
        self._links.clear()
        with self._links:
            for name in names:
                link = html.a(f"Open {name}", href=f"/proxy/{self._id}/{name}/").classes("text-link")
                link.props('target=_blank rel="noopener noreferrer"')
