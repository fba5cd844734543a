"""Random devices in ResourceSlices, and ResourceClaims for pods, for the comparison with kube-scheduler."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Sequence
from typing import Any

from drivers.kubernetes.devices.cases import DRIVER, claim_object, device_object, slice_object, template_object

Json = dict[str, Any]
ATTRIBUTES = f'device.attributes["{DRIVER}"]'
MEMORY = f'device.capacity["{DRIVER}"].memory'
SELECTORS = (
    f'{ATTRIBUTES}.model == "a100"',
    f'{ATTRIBUTES}.model in ["a100", "h100"]',
    f"{ATTRIBUTES}.index > 0",
    f'{MEMORY}.compareTo(quantity("40Gi")) >= 0',
    f"{ATTRIBUTES}.driver.isGreaterThan(semver('12.0.0'))",
    f"has({ATTRIBUTES}.nvlink) && {ATTRIBUTES}.nvlink",
    f'{ATTRIBUTES}.model.startsWith("h") || {ATTRIBUTES}.socket == 0',
)
RULES = ({"matchAttribute": f"{DRIVER}/socket"}, {"distinctAttribute": f"{DRIVER}/model"})
TAINT = {"key": f"{DRIVER}/unhealthy", "value": "ecc", "effect": "NoSchedule"}


def random_slices(rng: random.Random, nodes: Sequence[str], copy_label: str, mark: str) -> list[Json]:
    """ResourceSlices of some of the nodes, and sometimes a pool that all nodes of the copy reach."""
    made = []
    for node in nodes:
        if rng.random() < 0.15:
            continue
        devices = [_device(rng, number) for number in range(rng.randint(1, 4))]
        value = slice_object(node, 1, devices=_with_ids(devices, node.removeprefix(mark)))
        if rng.random() < 0.1:
            value["spec"]["pool"]["resourceSliceCount"] = 2
        made.append(value)
    if rng.random() < 0.25:
        rule = {"key": copy_label, "operator": "In", "values": [mark]}
        scope = {"nodeName": None, "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}}
        devices = _with_ids([_device(rng, number) for number in range(2)], "-fabric")
        value = slice_object(f"{mark}-fabric", 1, devices=devices, **scope)
        del value["spec"]["nodeName"]
        made.append(value)
    return made


def _with_ids(devices: list[Json], pool: str) -> list[Json]:
    """Give devices an attribute by which a claim can name one of them; it is the same in both copies."""
    for device in devices:
        device["attributes"]["id"] = {"string": f"{pool}/{device['name']}"}
    return devices


def _device(rng: random.Random, number: int) -> Json:
    made = device_object(
        number,
        model=rng.choice(["a100", "a100", "h100", "t4"]),
        memory=rng.choice(["16Gi", "40Gi", "80Gi"]),
        socket=rng.randint(0, 1),
    )
    made["attributes"]["driver"] = {"version": rng.choice(["11.8.0", "12.4.0"])}
    if rng.random() < 0.3:
        made["attributes"]["nvlink"] = {"bool": rng.random() < 0.7}
    if rng.random() < 0.15:
        made["taints"] = [TAINT]
    return made


def random_claims(rng: random.Random, mark: str, tasks: int) -> tuple[list[Json], list[list[Json]]]:
    """ResourceClaims and templates, and `resourceClaims` for each of so many pods."""
    kind = rng.choice(["own", "own", "template", "common"])
    requests = [_request(rng, f"r{number}") for number in range(rng.choice([1, 1, 2]))]
    more: Json = {"constraints": [rng.choice(RULES)]} if rng.random() < 0.3 else {}
    if kind == "template":
        value = template_object("asked", *requests, namespace=mark)
        value["spec"]["spec"]["devices"] |= more
        return [value], [[{"name": "gpus", "resourceClaimTemplateName": "asked"}] for _ in range(tasks)]
    names = ["common"] * tasks if kind == "common" else [f"own-{number}" for number in range(tasks)]
    made = [claim_object(name, *requests, namespace=mark, **more) for name in dict.fromkeys(names)]
    return made, [[{"name": "gpus", "resourceClaimName": name}] for name in names]


def _request(rng: random.Random, name: str) -> Json:
    if rng.random() < 0.25:
        return {"name": name, "firstAvailable": [{"name": f"c{at}", **_exactly(rng)} for at in range(2)]}
    return {"name": name, "exactly": _exactly(rng)}


def _exactly(rng: random.Random) -> Json:
    made: Json = {"deviceClassName": "gpu"}
    made |= {"allocationMode": "All"} if rng.random() < 0.15 else {"count": rng.choice([1, 1, 2, 3])}
    chosen = rng.sample(SELECTORS, rng.choice([0, 0, 1, 1, 2]))
    if chosen:
        made["selectors"] = [{"cel": {"expression": each}} for each in chosen]
    if rng.random() < 0.3:
        made["tolerations"] = [{"key": TAINT["key"], "operator": "Exists", "effect": "NoSchedule"}]
    return made


def kept_claim(claim: Json, mark: str, name: str, namespace: str) -> Json:
    """The claim of the other copy that asks for the same and can be met only by the devices that this one got."""
    devices = copy.deepcopy(claim["spec"]["devices"])
    got: dict[str, list[str]] = {}
    for each in claim["status"]["allocation"]["devices"]["results"]:
        got.setdefault(each["request"], []).append(f"{each['pool'].removeprefix(mark)}/{each['device']}")
    for request in devices["requests"]:
        parts = [(request["name"], request["exactly"])] if "exactly" in request else []
        parts += [(f"{request['name']}/{each['name']}", each) for each in request.get("firstAvailable", ())]
        for asked, part in parts:
            if asked in got and part.get("allocationMode") != "All":
                expression = f"{ATTRIBUTES}.id in {json.dumps(got[asked])}"
                part["selectors"] = [*part.get("selectors", ()), {"cel": {"expression": expression}}]
    return claim_object(name, *devices.pop("requests"), namespace=namespace, **devices)
