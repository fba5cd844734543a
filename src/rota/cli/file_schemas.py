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
        name="template",
        target="rota.files.templates.template_file:TemplateFile",
        about="a job or a sweep with parameters, for rota template add",
    ),
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
    FileKind(name="oidc", target="rota.files.oidc_file:OidcFile", about="single sign-on, for oidc in the settings"),
    FileKind(
        name="dispatch",
        target="rota.drivers.kubernetes.dispatch.clusters_file:DispatchFile",
        about="several clusters, for rota k8s dispatch",
    ),
)
_PLACE = {"type": "string", "pattern": "\\{\\{.*\\}\\}"}
"""A parameter of a template, which may stand for any value."""


class _WrittenForms(GenerateJsonSchema):
    """What is parsed before it is checked may be written in more forms than its result has: `2h`, `16Gi`, `auto`."""

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> dict[str, Any]:
        """Return the form of the result where it is a structure or text; a number may be text as well."""
        inner = super().function_before_schema(schema)
        if {"on", "off"} & set(inner.get("enum", ())):  # YAML takes the bare words for truth values
            return {"anyOf": [inner, {"type": "boolean"}]}
        if inner.get("type") in ("integer", "number"):
            return {"type": ["number", "string"]}
        # Rota reads moments without seconds or an offset, which the format of JSON schemas demands.
        return {key: value for key, value in inner.items() if key != "format"}

    def str_schema(self, schema: core_schema.StringSchema) -> dict[str, Any]:
        """Return the form of a text, which may be a number: YAML reads `rack: 1` and `env: {EPOCHS: 3}` so."""
        return {**super().str_schema(schema), "type": ["string", "number"]}


def schema_of(model: type[BaseModel], title: str, about: str) -> dict[str, Any]:
    """Return the JSON schema of a file."""
    made = model.model_json_schema(by_alias=True, mode="validation", schema_generator=_WrittenForms)
    return {"$schema": DIALECT, **made, "title": title, "description": about}


def _template_schema(made: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a template with the fields of what it stands for, each of which may be a parameter."""
    definitions, properties = dict(made["$defs"]), dict(made["properties"])
    for kind in ("job", "sweep"):
        part = _with_places(file_schema(kind))
        definitions |= part.pop("$defs")
        definitions[kind] = {key: value for key, value in part.items() if key != "$schema"}
        properties[kind] = {"$ref": f"#/$defs/{kind}"}
    return {**made, "$defs": definitions, "properties": properties}


def _with_places(schema: dict[str, Any]) -> dict[str, Any]:
    """Let a parameter stand for every value of a field, a list or a mapping."""
    found: dict[str, Any] = {}
    for key, value in schema.items():
        match key:
            case "$defs":
                found[key] = {name: _with_places(part) for name, part in value.items()}
            case "properties":
                found[key] = {name: _or_place(part) for name, part in value.items()}
            case "items" | "additionalProperties" if isinstance(value, dict):
                found[key] = _or_place(value)
            case "prefixItems":
                found[key] = [_or_place(part) for part in value]
            case "anyOf" | "oneOf":
                found[key] = [_with_places(part) for part in value]
            case _:
                found[key] = value
    return found


def _or_place(part: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that takes a parameter as well; what an editor shows of it stays outside."""
    shown = {"title", "description", "default"} & part.keys()
    rest = _with_places({key: value for key, value in part.items() if key not in shown})
    return {**{key: part[key] for key in sorted(shown)}, "anyOf": [rest, _PLACE]}


def file_schema(kind: str, kinds: Sequence[FileKind] = KINDS) -> dict[str, Any]:
    """Return the schema of a kind of file by its name."""
    for each in kinds:
        if each.name == kind:
            module, _, name = each.target.partition(":")
            made = schema_of(getattr(importlib.import_module(module), name), f"Rota: {each.name} file", each.about)
            return _template_schema(made) if kind == "template" else made
    raise RotaError(f"unknown kind of file {kind!r}; {did_you_mean(kind, [each.name for each in kinds])}")
