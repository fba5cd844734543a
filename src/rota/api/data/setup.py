"""Files of users as a part of a manager: what is refused at submission, and what is deleted with old jobs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from rota.api.service import Service
from rota.core.errors import RotaError
from rota.drivers.local.containers.job_refusal import refuse_container
from rota.drivers.local.machine import refuse_what_cannot_be
from rota.drivers.local.paced_starts import refuse_too_many_tasks
from rota.drivers.local.settings import Settings
from rota.files.job_shape import JobFile
from rota.live.data.search_index import SearchIndex
from rota.live.data.template_registry import TemplateRegistry
from rota.store.data.data_sets import DataSets
from rota.store.data.snapshots import Snapshots


def refusal(settings: Settings, most_tasks: int, also: Callable[[JobFile], None]) -> Callable[[JobFile], None]:
    """Return what raises a `RotaError` for a job that this machine can't run, or that `also` refuses."""
    snapshots, data_sets = Snapshots(settings.home), DataSets(settings.home)
    maps_accounts = not settings.accounts.is_empty

    def refuse(file: JobFile) -> None:
        for name in file.data:
            try:
                data_sets.find(name, file.tenant)
            except RotaError as error:
                raise RotaError(f"job: {error}") from error
        also(file)
        refuse_what_cannot_be(file)
        refuse_container(file, settings.containers, maps_accounts=maps_accounts)
        refuse_too_many_tasks(file, most_tasks)
        if file.snapshot is not None and not snapshots.has(file.tenant, file.snapshot.digest):
            raise RotaError(
                f"job: snapshot: tenant {file.tenant} has no snapshot {file.snapshot.digest[:12]}; "
                "send it with `rota submit --snapshot`"
            )

    return refuse


def with_data(service: Service) -> Service:
    """Return the services with the files of users."""
    return replace(
        service,
        snapshots=Snapshots(service.home),
        templates=TemplateRegistry(service.control, service.records),
        search=SearchIndex(service.home, service.records),
    )


def data_upkeep(service: Service) -> list[Callable[[], Coroutine[Any, Any, None]]]:
    """Return what runs as long as the manager does."""
    return [] if service.search is None else [service.search.run]
