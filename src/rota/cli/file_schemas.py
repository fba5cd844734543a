"""JSON schemas of the files that people write, for editors: what may stand where, and what each field means."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from rota.core.errors import RotaError, did_you_mean

DIALECT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileKind:
    """A kind of file: the model that reads it, and what it is."""

    name: str
    target: str
    """`module:class` of the model."""
    about: str


KINDS = (
    FileKind(name="job", target="rota.files.job_shape:JobFile", about="a job, for rota submit"),
    FileKind(name="sweep", target="rota.sweeps.file:SweepFile", about="a search over parameters, for rota sweep"),
    FileKind(
        name="cluster",
        target="rota.files.cluster_file:ClusterFile",
        about="nodes and tenants, for rota up and rota sim",
    ),
    FileKind(name="tenant", target="rota.files.tenants:TenantEntry", about="an entry of the tenants of a cluster file"),
    FileKind(
        name="settings", target="rota.files.up_file:UpFile", about="the settings of a manager, for rota up --config"
    ),
    FileKind(
        name="scenario", target="rota.files.scenario_file:ScenarioFile", about="a simulation, for rota sim --scenario"
    ),
    FileKind(
        name="network",
        target="rota.files.network.network_file:NetworkFile",
        about="links and topology, for rota sim --network",
    ),
)


class _WrittenForms(GenerateJsonSchema):
    """What is parsed before it is checked may be written in more forms than its result has: `2h`, `16Gi`, `auto`."""

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> dict[str, Any]:
        """Return the form of the result where it is a structure or text; a number may be text as well."""
        inner = super().function_before_schema(schema)
        if {"on", "off"} & set(inner.get("enum", ())):  # YAML takes the bare words for truth values
            return {"anyOf": [inner, {"type": "boolean"}]}
        return {"type": ["number", "string"]} if inner.get("type") in ("integer", "number") else inner


def schema_of(model: type[BaseModel], title: str, about: str) -> dict[str, Any]:
    """Return the JSON schema of a file."""
    made = model.model_json_schema(by_alias=True, mode="validation", schema_generator=_WrittenForms)
    return {"$schema": DIALECT, **made, "title": title, "description": about}


def file_schema(kind: str, kinds: Sequence[FileKind] = KINDS) -> dict[str, Any]:
    """Return the schema of a kind of file by its name."""
    for each in kinds:
        if each.name == kind:
            module, _, name = each.target.partition(":")
            return schema_of(getattr(importlib.import_module(module), name), f"Rota: {each.name} file", each.about)
    raise RotaError(f"unknown kind of file {kind!r}; {did_you_mean(kind, [each.name for each in kinds])}")
