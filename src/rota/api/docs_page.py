"""The documentation of the API as a plain page, made from the OpenAPI description: it needs no scripts."""

from __future__ import annotations

from functools import cache
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, PackageLoader

from rota.api.guard.cross_site import NO_SCRIPTS

router = APIRouter(include_in_schema=False)
PAGE = "/api/docs"
STYLE = "/api/docs.css"
METHODS = ("get", "post", "put", "patch", "delete")


@cache
def _templates() -> Environment:
    return Environment(loader=PackageLoader("rota.api", "templates"), autoescape=True, trim_blocks=True)


@router.get(PAGE)
async def docs(request: Request) -> Response:
    """Return the page."""
    schema = request.app.openapi()
    shown = (
        _templates()
        .get_template("docs.html")
        .render(
            title=schema["info"]["title"],
            version=schema["info"]["version"],
            groups=_groups(schema),
            schemas=_schemas(schema),
        )
    )
    return HTMLResponse(shown, headers=NO_SCRIPTS)


@router.get(STYLE)
async def style() -> Response:
    """Return the style of the page."""
    source, _, _ = PackageLoader("rota.api", "templates").get_source(_templates(), "docs.css")
    return Response(source, media_type="text/css", headers={"X-Content-Type-Options": "nosniff"})


@router.get("/docs")
@router.get("/redoc")
async def moved() -> Response:
    """Lead from the usual addresses to the page."""
    return RedirectResponse(PAGE)


def _groups(schema: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the operations by their tag."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, operations in schema["paths"].items():
        for method in METHODS:
            if method in operations:
                operation = operations[method]
                tag = (operation.get("tags") or ["other"])[0]
                groups.setdefault(tag, []).append(_operation(method, path, operation))
    return groups


def _operation(method: str, path: str, operation: dict[str, Any]) -> dict[str, Any]:
    body = operation.get("requestBody", {}).get("content", {})
    return {
        "method": method.upper(),
        "path": path,
        "about": operation.get("description") or operation.get("summary", ""),
        "parameters": [
            {
                "name": each["name"],
                "where": each["in"],
                "type": type_name(each.get("schema", {})),
                "required": each.get("required", False),
                "about": each.get("description", ""),
            }
            for each in operation.get("parameters", ())
        ],
        "bodies": [type_name(content.get("schema", {})) for content in body.values()],
        "answers": [
            (status, answer.get("description", ""), _answer_type(answer))
            for status, answer in operation.get("responses", {}).items()
        ],
    }


def _answer_type(answer: dict[str, Any]) -> str:
    return next((type_name(content.get("schema", {})) for content in answer.get("content", {}).values()), "")


def _schemas(schema: dict[str, Any]) -> list[tuple[str, str, list[tuple[str, str, bool, str]]]]:
    """Return the types of bodies and answers: name, description, and fields."""
    found = []
    for name, each in sorted(schema.get("components", {}).get("schemas", {}).items()):
        required = each.get("required", ())
        fields = [
            (field, type_name(kind), field in required, kind.get("description", ""))
            for field, kind in each.get("properties", {}).items()
        ]
        found.append((name, each.get("description", ""), fields))
    return found


def type_name(schema: dict[str, Any]) -> str:
    """Return the type of a schema in words: `list of Job`, `string or null`."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            return " or ".join(dict.fromkeys(type_name(each) for each in schema[choice]))
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {type_name(schema.get('items', {}))}"
    return str(kind)
