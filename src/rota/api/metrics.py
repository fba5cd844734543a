"""Metrics for Prometheus. Labels are states and types, never jobs."""

from __future__ import annotations

import asyncio
from collections import Counter as Tally
from collections.abc import Iterator, Mapping

from fastapi import APIRouter, Depends, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from rota.api.alerts.figures import folder_metrics, message_metrics, queue_metrics
from rota.api.gpu.prometheus import gpu_metrics
from rota.api.service import Service, principal, service
from rota.health.node_state import NodeHealthState
from rota.live.loop.policy_faults import fault_of
from rota.live.loop.record import SHOWN_STATES
from rota.live.truth.scores import ScoredMoment, TruthRow

router = APIRouter(tags=["probes"], dependencies=[Depends(principal)])


class Collector:
    """Reads the manager's state when it is scraped; what the database holds was read before, off the loop."""

    def __init__(
        self,
        parts: Service,
        counts: Mapping[tuple[str, str], int],
        scores: Mapping[ScoredMoment, TruthRow],
        messages: Mapping[str, int],
    ) -> None:
        self._parts = parts
        self._counts = counts
        self._scores = scores
        self._messages = messages

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        control = self._parts.control
        jobs = GaugeMetricFamily("rota_jobs", "Jobs in the database, by state.", labels=["state"])
        tally: Tally[str] = Tally()
        for (_, state), count in self._counts.items():
            tally[state] += count
        for state_name in SHOWN_STATES:
            jobs.add_metric([state_name], tally[state_name])
        yield jobs
        yield from self._devices()
        yield from queue_metrics(self._parts, (tenant for tenant, _ in self._counts))
        yield from folder_metrics(self._parts)
        yield from message_metrics(self._messages)
        yield CounterMetricFamily("rota_steps", "Steps of the engine.", value=control.steps)
        times = control.step_times
        buckets = [(str(limit), count) for limit, count in times.cumulative()]
        yield HistogramMetricFamily(
            "rota_step_seconds", "Duration of the steps of the engine.", buckets=buckets, sum_value=times.total_s
        )
        yield from self._truth()
        yield from gpu_metrics(self._parts.gpus)
        yield from self._health()
        trouble = 0 if control.trouble is None else 1
        held_s = control.watch.longest_s()
        yield GaugeMetricFamily("rota_loop_hold_seconds", "Longest hold of the loop in the last minute.", value=held_s)
        yield GaugeMetricFamily("rota_storage_trouble", "1 while the database can't be written.", value=trouble)
        fault = 0 if fault_of(control.engine.policy) is None else 1
        yield GaugeMetricFamily("rota_policy_fault", "1 while a user's policy fails and decides nothing.", value=fault)
        for name, (about, count) in self._parts.more_counters().items():
            yield CounterMetricFamily(name, about, value=count)

    def _health(self) -> Iterator[Metric]:
        """Yield the nodes by the state of their health, and the verdicts about failed jobs."""
        causes = self._parts.failures_by_cause
        if causes is None:
            return
        nodes = GaugeMetricFamily("rota_nodes_health", "Nodes by the state of their health.", labels=["state"])
        accounts = [each for each in self._parts.control.state.inventory.nodes if not each.removed]
        tally = Tally(self._parts.health_of(each.node.id)["health"] for each in accounts)
        for state in NodeHealthState:
            nodes.add_metric([state.value], tally[state.value])
        yield nodes
        verdicts = CounterMetricFamily("rota_failures", "Failed attempts by cause.", labels=["cause"])
        for cause, count in sorted(causes.items()):
            verdicts.add_metric([cause], count)
        yield verdicts
        if self._parts.health is not None:
            lemons = len(self._parts.health.nodes.lemons)
            yield GaugeMetricFamily("rota_lemon_nodes", "Nodes that fail far more often than others.", value=lemons)
            found = self._parts.health.checks.broken
            checks = Tally(name for each in accounts for name in found.get(each.node.id, ()))
            broken = GaugeMetricFamily("rota_broken_checks", "Nodes on which a check itself fails.", labels=["check"])
            for check, count in sorted(checks.items()):
                broken.add_metric([check], count)
            yield broken

    def _truth(self) -> Iterator[Metric]:
        """Yield the scores of the forecasts of the last day, and by how much new ranges are stretched."""
        scored = GaugeMetricFamily("rota_forecasts_scored", "Forecasts of the last day, scored.", labels=["moment"])
        overdue = GaugeMetricFamily("rota_forecasts_overdue", "Forecasts whose range is over.", labels=["moment"])
        coverage = GaugeMetricFamily(
            "rota_forecast_coverage_ratio", "Share of 90% ranges that held what happened.", labels=["moment"]
        )
        error = GaugeMetricFamily(
            "rota_forecast_error_ratio",
            "Error of the median, as a part of the time to the moment.",
            labels=["moment", "quantile"],
        )
        stretch = GaugeMetricFamily(
            "rota_forecast_stretch_ratio", "Factor by which new ranges are stretched.", labels=["moment", "side"]
        )
        factors = self._parts.truth.factors()
        for moment, row in self._scores.items():
            name = moment.value
            scored.add_metric([name], row.scored)
            overdue.add_metric([name], row.overdue)
            for family, labels, value in (
                (coverage, [name], row.coverage),
                (error, [name, "0.5"], row.median_error),
                (error, [name, "0.9"], row.p90_error),
            ):
                if value is not None:
                    family.add_metric(labels, value)
            for side in ("below", "above"):
                stretch.add_metric([name, side], factors[name][side])
        yield from (scored, overdue, coverage, error, stretch)

    def _devices(self) -> Iterator[Metric]:
        found = GaugeMetricFamily("rota_devices", "Devices, by type and use.", labels=["type", "use"])
        for pool in self._parts.control.state.inventory.pools:
            if pool.devices:
                found.add_metric([pool.device_type, "free"], pool.free)
                found.add_metric([pool.device_type, "held"], pool.usable - pool.free)
                found.add_metric([pool.device_type, "unusable"], pool.devices - pool.usable)
        yield found


async def collector(parts: Service) -> Collector:
    """Return a collector with what is read from the database."""
    counts = await asyncio.to_thread(parts.records.counts)
    scores = await asyncio.to_thread(parts.truth.scraped)
    messages = {} if parts.accounts is None else await asyncio.to_thread(parts.records.outbox.counts)
    return Collector(parts, counts, scores, messages)


@router.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Return the metrics in Prometheus' format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(await collector(service(request)))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
