"""Replays HiveD scenario files against Rota's cells and says which steps came out otherwise.

Usage: python tests/conformance/hived.py [--config-dir DIR] FILE.json...

Prints one line per failing step and last `N of M steps as expected`, M being the steps that carry an expectation; exits
0 only if nothing failed. The format of the files is described in the key `format` of HiveD's cases. `acceptable`
decides where present, else `expect`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.pod_types import Answer, Bind, PodRefused, PodSpec, Preempt, Question, Wait
from conformance.pods import PodFront
from rota.core.errors import RotaError
from rota.files.hived import read_cell_plan
from rota.tenancy.cells.tree import Physical, ancestor

Json = Mapping[str, Any]

EXPECTATIONS = ("expect", "acceptable", "expectGroups", "expectVirtualCells")


def pod_spec(values: Json) -> PodSpec:
    """A pod's annotation; the old names of devices are read too."""
    group = values.get("affinityGroup")
    return PodSpec(
        tenant=values.get("virtualCluster", ""),
        priority=int(values.get("priority", 0)),
        devices=int(values.get("leafCellNumber", values.get("gpuNumber", 0))),
        leaf_type=values.get("leafCellType") or values.get("gpuType") or None,
        pinned=values.get("pinnedCellId") or None,
        group=None if group is None else group["name"],
        members=()
        if group is None
        else tuple(
            (m["podNumber"], m.get("leafCellNumber", m.get("gpuNumber", 0))) for m in group.get("members") or ()
        ),
        lazy=bool(values.get("lazyPreemptionEnable", False)),
        ignores_suggestions=values.get("ignoreK8sSuggestedNodes") is not False,
    )


@dataclass
class Replay:
    """One scenario on its way: the gangs, and where each pod was bound."""

    folder: Path
    specs: dict[str, PodSpec]
    front: PodFront
    bound: dict[str, Bind] = field(default_factory=dict)
    last: dict[str, Bind] = field(default_factory=dict)
    bad: set[str] = field(default_factory=set)

    def step(self, step: Json) -> Answer | PodRefused | None:
        """Carry one step out; what came of it, where anything does."""
        match step["op"]:
            case "schedule":
                return self._schedule(step)
            case "deletePod" | "deleteUnallocatedPod":
                pod = step["pod"]
                self.bound.pop(pod, None)
                self.front.delete(pod, self.specs[pod])
            case "nodeBad":
                self.bad.add(step["node"])
                self.front.turn(step["node"], is_up=False)
            case "nodeHealthy":
                self.bad.discard(step["node"])
                self.front.turn(step["node"], is_up=True)
            case "restart":
                self._restart(step)
            case "inspectVirtualCells":
                pass
            case unknown:
                raise RotaError(f"unknown op {unknown!r}")
        return None

    def _schedule(self, step: Json) -> Answer | PodRefused:
        pod, spec = step["pod"], self.specs[step["pod"]]
        question = Question(step.get("phase", "Filtering"))
        try:
            answer = self.front.schedule(pod, spec, question, self._suggested(step))
        except PodRefused as refused:
            return refused
        if isinstance(answer, Bind):
            self.last[pod] = answer
            if step.get("commit", True):
                self.front.commit(pod, answer)
                self.bound[pod] = answer
            else:
                self.front.discard(answer)
        return answer

    def _suggested(self, step: Json) -> set[str] | None:
        match step.get("suggestedNodes", "ALL"):
            case "ALL" | None:
                return None
            case {"allExcept": rest}:
                return set(self.front.allocator.accounts.forest.cells_by_node) - set(rest)
            case listed:
                return set(listed)

    def _restart(self, step: Json) -> None:
        pods = step.get("recoverPods") or list(self.bound)
        kept = {pod: (self.specs[pod], self.bound[pod]) for pod in pods if pod in self.bound}
        self.front = PodFront(read_cell_plan(self.folder / step["config"]), extra=self.front.cluster)
        self.front.recover(kept, self.bad)


def started(config: Path) -> PodFront:
    """An engine that has just started."""
    return PodFront(read_cell_plan(config))


def replay(scenario: Json, folder: Path) -> Iterator[tuple[str, list[str], bool]]:
    """What was looked at: its name, what is wrong with it, and whether it is a step that carries an expectation.

    Beside those steps that is the load, and a step without an expectation that breaks.
    """
    config = folder / scenario["config"]
    specs = {name: pod_spec(values) for name, values in scenario.get("podSpecs", {}).items()}
    try:
        run = Replay(folder, specs, started(config))
    except RotaError as error:
        wanted = scenario.get("expectLoad", {}).get("outcome") == "error"
        yield f"{scenario['id']} load", [] if wanted else [f"it does not load: {error}"], False
        for number, step in enumerate(scenario["steps"], 1):
            if not wanted and _is_judged(step):
                yield f"{scenario['id']} step {number} ({step['op']})", ["it was not reached"], True
        return
    if "expectLoad" in scenario:
        wanted = scenario["expectLoad"].get("outcome")
        yield f"{scenario['id']} load", ["it loads"] if wanted == "error" else [], False
    broken: str | None = None
    for number, step in enumerate(scenario["steps"], 1):
        name = f"{scenario['id']} step {number} ({step['op']} {step.get('pod') or step.get('node') or ''})"
        faults: list[str] = []
        if broken is None:
            try:
                outcome = run.step(step)
                faults = list(wrong_with(step, outcome, run))
            except RotaError as error:
                if step.get("expect", {}).get("outcome") != "error":
                    broken = str(error)
            except Exception as error:  # a crash is a failing step, not the end of the replay
                broken = f"internal error: {type(error).__name__}: {error}"
        if broken is not None:
            faults = [broken]
        if faults or _is_judged(step):
            yield name, faults, _is_judged(step)


def _is_judged(step: Json) -> bool:
    return any(key in step for key in EXPECTATIONS)


def wrong_with(step: Json, outcome: Answer | PodRefused | None, run: Replay) -> Iterator[str]:
    """What about a step is not as expected."""
    expect = step.get("expect", {})
    wanted = expect.get("outcome", "bind" if "acceptable" in step else None)
    got = {Bind: "bind", Preempt: "preempt", Wait: "wait", PodRefused: "reject"}.get(type(outcome), "ok")
    if wanted is not None and wanted != got:
        yield f"expected {wanted}, got {got} ({outcome})"
        return
    if isinstance(outcome, Bind):
        if "acceptable" in step:
            yield from _unacceptable(step["acceptable"], outcome, run)
        elif "node" in expect and outcome.node != expect["node"]:
            yield f"expected node {expect['node']}, got {outcome.node}"
        elif "leafCells" in expect and list(outcome.indexes) != expect["leafCells"]:
            yield f"expected devices {expect['leafCells']}, got {list(outcome.indexes)}"
    if isinstance(outcome, Preempt):
        yield from _wrong_victims(expect, set(outcome.victims))
    yield from _wrong_groups(step.get("expectGroups", {}), run)
    if "expectVirtualCells" in step:
        yield from _wrong_cells(step, run)


def _wrong_victims(expect: Json, victims: set[str]) -> Iterator[str]:
    if not victims:
        yield "expected victims, got none"
    if "allVictims" in expect:
        if victims != set(expect["allVictims"]):
            yield f"expected victims {sorted(expect['allVictims'])}, got {sorted(victims)}"
    elif "victimsSubsetOf" in expect and not victims <= set(expect["victimsSubsetOf"]):
        yield f"expected victims among {expect['victimsSubsetOf']}, got {sorted(victims)}"


def _unacceptable(wish: Json, got: Bind, run: Replay) -> Iterator[str]:
    if "nodeIn" in wish and got.node not in wish["nodeIn"]:
        yield f"node {got.node} is not among {wish['nodeIn']}"
    if "leafCount" in wish and len(got.indexes) != wish["leafCount"]:
        yield f"expected {wish['leafCount']} devices, got {len(got.indexes)}"
    for other in _listed(wish, "sameNodeAs"):
        if got.node != run.last[other].node:
            yield f"node {got.node} is not that of {other}, {run.last[other].node}"
    for other in _listed(wish, "differentNodeFrom"):
        if got.node == run.last[other].node:
            yield f"node {got.node} is that of {other} too"
    for other in _listed(wish, "disjointFrom"):
        if got.node == run.last[other].node and set(got.indexes) & set(run.last[other].indexes):
            yield f"it shares devices with {other}"
    mine = _devices(got, run)
    if "withinOneCellOfType" in wish and len(_around(mine, wish["withinOneCellOfType"])) != 1:
        yield f"its devices are not within one {wish['withinOneCellOfType']}"
    if "withinSameCellAs" in wish:
        same = wish["withinSameCellAs"]
        cells = _around(mine + _devices(run.last[same["pod"]], run), same["cellType"])
        if len(cells) != 1:
            yield f"its devices are not within the {same['cellType']} of {same['pod']}"


def _listed(wish: Json, key: str) -> list[str]:
    """Pods named in a wish, one or several."""
    names = wish.get(key) or ()
    return [names] if isinstance(names, str) else list(names)


def _devices(bind: Bind, run: Replay) -> list[Physical]:
    forest = run.front.allocator.accounts.forest
    found = [forest.find_device(bind.chain, bind.node, index) for index in bind.indexes]
    return [device for device in found if device is not None]


def _around(devices: list[Physical], kind: str) -> set[Physical | None]:
    """The cells of a type in which devices lie."""
    cells: set[Physical | None] = set()
    for device in devices:
        cell: Physical | None = device
        while cell is not None and cell.type != kind:
            cell = ancestor(cell, cell.level + 1)
        cells.add(cell)
    return cells


def _wrong_groups(expected: Json, run: Replay) -> Iterator[str]:
    for name, wish in expected.items():
        state = run.front.state_of(name)
        if wish is None or state is None:
            if (wish is None) != (state is None):
                yield f"group {name}: expected {wish}, got {state}"
            continue
        if "state" in wish and state != wish["state"]:
            yield f"group {name}: expected {wish['state']}, got {state}"
        by = run.front.downgraded_by(name)
        if "lazyPreemptedBy" in wish and by != wish["lazyPreemptedBy"]:
            yield f"group {name}: expected to be lazily preempted by {wish['lazyPreemptedBy']}, got {by}"
        if "lazyPreempted" in wish and (by is not None) != wish["lazyPreempted"]:
            yield f"group {name}: expected lazily preempted {wish['lazyPreempted']}, got {by is not None}"


def _wrong_cells(step: Json, run: Replay) -> Iterator[str]:
    wish = step["expectVirtualCells"]
    for cell in run.front.promised(step["vc"], step["chain"]):
        if wish.get("scope", "all") == "free" and cell.used:
            continue
        health = "Healthy" if cell.is_healthy else "Bad"
        if health != wish["healthiness"]:
            yield f"cell {cell.address}: expected {wish['healthiness']}, got {health}"


def main(arguments: list[str]) -> int:
    """Replay files; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--config-dir", type=Path, help="where the cluster files are; default: beside each scenario file"
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE.json")
    options = parser.parse_args(arguments)
    good = total = broken = 0
    for path in options.files:
        try:
            scenarios = json.loads(path.read_text(encoding="utf-8"))["scenarios"]
        except (OSError, ValueError, LookupError, TypeError) as error:
            parser.error(f"{path} is no file of scenarios: {error}")
        for scenario in scenarios:
            for name, faults, is_step in replay(scenario, _folder(options.config_dir, path, scenario)):
                total += is_step
                good += is_step and not faults
                broken += bool(faults)
                if faults:
                    print(f"{path.name}: {name}: {'; '.join(faults)}")
    print(f"{good} of {total} steps as expected")
    return 1 if broken else 0


def _folder(given: Path | None, path: Path, scenario: Json) -> Path:
    """The folder to which a scenario's cluster files are relative: DIR may be that folder or the one they are in."""
    if given is None:
        return path.parent
    return given if (given / scenario["config"]).exists() else given.parent


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
