"""Metrics for Prometheus. Labels are states and types, never jobs."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator

from fastapi import APIRouter, Depends, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from rota.api.service import Service, principal, service
from rota.live.loop.record import SHOWN_STATES

router = APIRouter(tags=["probes"], dependencies=[Depends(principal)])


class Collector:
    """Reads the manager's state when it is scraped."""

    def __init__(self, parts: Service) -> None:
        self._parts = parts

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        control = self._parts.control
        jobs = GaugeMetricFamily("rota_jobs", "Jobs in the database, by state.", labels=["state"])
        tally: Tally[str] = Tally()
        for (_, state), count in self._parts.records.counts().items():
            tally[state] += count
        for state_name in SHOWN_STATES:
            jobs.add_metric([state_name], tally[state_name])
        yield jobs
        yield from self._devices()
        yield CounterMetricFamily("rota_steps", "Steps of the engine.", value=control.steps)
        times = control.step_times
        buckets = [(str(limit), count) for limit, count in times.cumulative()]
        yield HistogramMetricFamily(
            "rota_step_seconds", "Duration of the steps of the engine.", buckets=buckets, sum_value=times.total_s
        )
        trouble = 0 if control.trouble is None else 1
        held_s = control.watch.longest_s()
        yield GaugeMetricFamily("rota_loop_hold_seconds", "Longest hold of the loop in the last minute.", value=held_s)
        yield GaugeMetricFamily("rota_storage_trouble", "1 while the database can't be written.", value=trouble)

        for name, (about, count) in self._parts.more_counters().items():
            yield CounterMetricFamily(name, about, value=count)

    def _devices(self) -> Iterator[Metric]:
        found = GaugeMetricFamily("rota_devices", "Devices, by type and use.", labels=["type", "use"])
        for pool in self._parts.control.state.inventory.pools:
            if pool.devices:
                found.add_metric([pool.device_type, "free"], pool.free)
                found.add_metric([pool.device_type, "held"], pool.usable - pool.free)
                found.add_metric([pool.device_type, "unusable"], pool.devices - pool.usable)
        yield found


@router.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Return the metrics in Prometheus' format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector(service(request)))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
