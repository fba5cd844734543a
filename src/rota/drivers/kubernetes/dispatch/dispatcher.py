"""The dispatcher: sends Jobs of the hub to clusters, follows their copies, and sends those of a lost cluster elsewhere.

What is decided is written onto the Job of the hub before a copy is made, so that a dispatcher that starts after a
crash continues. A cluster that comes back has its copies of earlier sendings deleted, unless one has succeeded there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any

from rota.core.errors import RotaError, Unavailable
from rota.drivers.kubernetes.api.client import Api, ApiRefused
from rota.drivers.kubernetes.dispatch import copies as notes
from rota.drivers.kubernetes.dispatch.choice import Choice, ClusterOffer, choose
from rota.drivers.kubernetes.dispatch.clusters_file import DispatchFile
from rota.drivers.kubernetes.dispatch.links import ClusterLink, open_api
from rota.drivers.kubernetes.settings import ClusterSettings

log = logging.getLogger("rota.drivers.kubernetes")
Json = dict[str, Any]


class Dispatcher:
    """The jobs of one hub."""

    def __init__(self, file: DispatchFile) -> None:
        self._file = file
        self._hub: Api = open_api(file.hub)
        self._links = {name: ClusterLink(name, entry) for name, entry in file.clusters.items()}
        self._settings = ClusterSettings()

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            while True:
                try:
                    await self.round()
                except Unavailable as error:
                    log.warning("the hub does not answer", extra={"why": str(error)})
                await asyncio.sleep(self._file.every)
        finally:
            await self._hub.close()
            for link in self._links.values():
                await link.close()

    async def round(self) -> None:
        """Look at everything once, and do what is due."""
        found, _ = await self._hub.everything(f"{notes.JOBS}/jobs", labelSelector=f"{notes.WANTED}=true")
        await asyncio.gather(*(link.look() for link in self._links.values()))
        jobs = [value for value in found if notes.is_held_back(value)]
        for value in found:
            if not notes.is_held_back(value) and notes.WHY not in notes.notes_of_job(value):
                await self._note(
                    value, {notes.WHY: "it runs in the hub: create it with `suspend: true` to have it sent"}
                )
        for value in sorted(jobs, key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["name"])):
            await self._reconcile(value)
        await self._tidy(jobs)

    async def _reconcile(self, value: Json) -> None:
        """Bring one job to where it should be."""
        said = notes.notes_of_job(value)
        if said.get(notes.STATE) in notes.ENDED:
            return
        link = self._links.get(said.get(notes.CLUSTER, ""))
        done = self._succeeded_elsewhere(value)
        if done is not None:
            await self._note(value, {notes.CLUSTER: done.name, notes.STATE: "succeeded"})
        elif link is None or link.is_lost(self._file.lost_after):
            await self._send(value, None if link is None else link.name)
        elif link.answers:
            await self._follow(value, link)

    def _succeeded_elsewhere(self, value: Json) -> ClusterLink | None:
        """Return the cluster where an earlier copy has succeeded, though the job was sent on."""
        for link in self._links.values():
            copy = link.copies.get(value["metadata"]["uid"])
            if copy is not None and notes.state_of_copy(copy) == "succeeded":
                return link
        return None

    async def _send(self, value: Json, lost: str | None) -> None:
        """Choose a cluster, write the choice down, and make the copy."""
        needs = notes.needs_of(value, self._settings)
        links = [link for link in self._links.values() if link.answers]
        found = await asyncio.gather(*(link.offer(value, needs) for link in links))
        offers: Sequence[ClusterOffer] = [each for each in found if each is not None]
        choice = choose(needs, offers, self._file.bandwidth, self._file.usual_bandwidth)
        if lost is not None and choice.cluster is not None:
            choice = Choice(cluster=choice.cluster, why=f"cluster {lost} was lost; {choice.why}")
        if choice.cluster is None:
            if notes.notes_of_job(value).get(notes.WHY) != choice.why:
                await self._note(value, {notes.STATE: "waiting", notes.WHY: choice.why})
            return
        turn = notes.turn_of(value) + 1
        said = {notes.CLUSTER: choice.cluster, notes.TURN: str(turn), notes.STATE: "sent", notes.WHY: choice.why}
        if await self._note(value, said):
            about = {"job": value["metadata"]["name"], "cluster": choice.cluster, "why": choice.why}
            log.info("a job is sent to a cluster", extra=about)
            await self._make(value, self._links[choice.cluster], turn)

    async def _make(self, value: Json, link: ClusterLink, turn: int) -> None:
        refused = await link.create(notes.copy_of(value, turn))
        if refused:
            log.warning("a copy could not be made", extra={"cluster": link.name, "why": refused})

    async def _follow(self, value: Json, link: ClusterLink) -> None:
        """Report what the copy does; make it if it is missing."""
        copy = link.copies.get(value["metadata"]["uid"])
        if copy is None or notes.turn_of(copy) != notes.turn_of(value):
            if copy is not None:
                await link.delete(copy)
            await self._make(value, link, notes.turn_of(value))
            return
        state = notes.state_of_copy(copy)
        if state != notes.notes_of_job(value).get(notes.STATE):
            await self._note(value, {notes.STATE: state})

    async def _note(self, value: Json, said: dict[str, str]) -> bool:
        """Write annotations onto a Job of the hub as it was read; whether it could be."""
        meta = value["metadata"]
        change = {"metadata": {"resourceVersion": meta["resourceVersion"], "annotations": said}}
        try:
            made = await self._hub.patch(f"{notes.JOBS}/namespaces/{meta['namespace']}/jobs/{meta['name']}", change)
        except ApiRefused as error:
            if error.status in (404, 409):  # it changed or is gone; the next round sees it
                return False
            raise
        value["metadata"] = made["metadata"]
        return True

    async def _tidy(self, jobs: Iterable[Json]) -> None:
        """Delete copies whose job is gone from the hub, or is in another cluster by now."""
        wanted: dict[str, tuple[str | None, int]] = {
            each["metadata"]["uid"]: (notes.notes_of_job(each).get(notes.CLUSTER), notes.turn_of(each)) for each in jobs
        }
        for link in self._links.values():
            if not link.answers:
                continue
            for copy in list(link.copies.values()):
                if not _is_wanted(copy, link.name, wanted):
                    log.info("a copy is deleted", extra={"cluster": link.name, "job": copy["metadata"]["name"]})
                    try:
                        await link.delete(copy)
                    except (Unavailable, RotaError) as error:
                        log.warning("a copy stays", extra={"cluster": link.name, "why": str(error)})


def _is_wanted(copy: Json, cluster: str, wanted: dict[str, tuple[str | None, int]]) -> bool:
    """Whether a copy is that of its job's present sending, or the one that succeeded."""
    where, turn = wanted.get(notes.origin_of(copy), (None, 0))
    return where == cluster and (notes.turn_of(copy) == turn or notes.state_of_copy(copy) == "succeeded")
