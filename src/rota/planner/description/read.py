"""Reads a planning problem from a file, whatever its form."""

from __future__ import annotations

from pathlib import Path

from rota.core.errors import RotaError
from rota.planner.description.devices import DeviceGraph, fully_connected
from rota.planner.description.fields import read_json
from rota.planner.description.problem import PlanningProblem
from rota.planner.description.profile_text import read_profile
from rota.planner.description.published_graph import is_published_graph, published_problem
from rota.planner.description.rota_graph import is_rota_graph, rota_problem

PROFILE_SUFFIXES = (".txt", ".profile")


def read_problem(path: Path, devices: DeviceGraph | None = None) -> PlanningProblem:
    """The problem of a file: Rota's JSON, dnn-partitioning's JSON, or a PipeDream profile.

    `devices` replace those that the file names, or stand in where it names none.
    """
    if path.suffix in PROFILE_SUFFIXES:
        profile = read_profile(path)
        devices = devices or fully_connected("gpu", 4)
        return PlanningProblem(graph=profile.graph(devices.types[0]), devices=devices)
    value = read_json(path)
    if is_published_graph(value):
        problem = published_problem(value, str(path))
    elif is_rota_graph(value):
        problem = rota_problem(value, str(path), devices)
    else:
        raise RotaError(f"{path}: neither `operators` nor `nodes` at the top; it is not a graph of operators")
    return problem if devices is None else PlanningProblem(graph=problem.graph, devices=devices)
