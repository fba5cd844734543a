"""Write `docs/reference/python.md` from the public names of `rota`, `rota.sdk` and `rota.policies`."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType

from docs.pages import ROOT

HEAD = """\
# Python

<!-- Written by tests/docs/rewrite.py from signatures and docstrings; change them, not this page. -->

The public names; everything else may change in any version (see [releases](../project/releases.md)). How they are used:
[experiments](../howto/run-an-experiment.md), [training scripts](../howto/train-with-pytorch.md) and [policies of your
own](../howto/write-a-policy.md).
"""
MODULES = ("rota", "rota.sdk", "rota.policies")


def page() -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *("\n".join(_module(importlib.import_module(name))) for name in MODULES)]) + "\n"


def _module(module: ModuleType) -> Iterator[str]:
    yield f"## `{module.__name__}`\n\n{_first(module)}\n"
    for name in sorted(module.__all__, key=str.lower):
        if name not in ("__version__", "policies"):
            yield _entry(f"{module.__name__}.{name}", getattr(module, name))


def _entry(path: str, value: object) -> str:
    if inspect.isclass(value) and path.startswith("rota.policies."):
        return f"### {path}\n\n{_written(value)}\n"
    if inspect.isclass(value):
        members = [line for name, member in _members(value).items() if (line := _member(name, member))]
        return f"### {path}\n\n```python\nclass {_signed(value.__name__, value)}\n```\n\n{_first(value)}\n\n" + "".join(
            members
        )
    if callable(value):
        return f"### {path}\n\n```python\n{_signed(path, value)}\n```\n\n{_first(value)}\n"
    return f"### {path}\n\nA value of type `{type(value).__name__}`.\n"


def _members(kind: type) -> dict[str, object]:
    """The members of a class: its own, then those of the parts of Rota that it is made of."""
    parts = [each for each in kind.__mro__ if each.__module__.startswith("rota.")]
    found: dict[str, object] = {}
    for part in parts:
        found |= {name: member for name, member in vars(part).items() if name not in found}
    return found


def _member(name: str, member: object) -> str | None:
    if name.startswith("_"):
        return None
    if isinstance(member, property):
        return f"- `{name}`: {_first(member)}\n"
    if inspect.isfunction(member):
        return f"- `{_signed(name, member)}`: {_first(member)}\n"
    return None


class _Bare:
    """An annotation that is shown without quotes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _bare(annotation: object) -> object:
    return _Bare(annotation) if isinstance(annotation, str) else annotation


def _signed(name: str, value: object) -> str:
    try:
        found = inspect.signature(value)  # type: ignore[arg-type]  # callables only
    except (TypeError, ValueError):
        return name
    listed = [
        each.replace(annotation=_bare(each.annotation)) for each in found.parameters.values() if each.name != "self"
    ]
    shown = str(found.replace(parameters=listed, return_annotation=_bare(found.return_annotation)))
    return name + re.sub(
        r"<([A-Za-z.]+): [^>]*>", r"\1", re.sub(r"<(?:function|class|object|factory)[^>]*>", "...", shown)
    )


def _written(kind: type) -> str:
    """Return the first paragraph of a class's docstring from its source: compiled classes have none."""
    source = ROOT / "src" / f"{kind.__module__.replace('.', '/')}.py"
    tree = ast.parse(
        (source if source.exists() else source.with_suffix("") / "__init__.py").read_text(encoding="utf-8")
    )
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == kind.__name__]
    return " ".join((ast.get_docstring(found[0]) or "").partition("\n\n")[0].split()) if found else _first(kind)


def _first(value: object) -> str:
    """Return the first paragraph of a docstring in one line; a generated one says nothing."""
    text = inspect.getdoc(value) or ""
    if inspect.isclass(value) and text.startswith(f"{value.__name__}("):
        return ""
    return " ".join(text.partition("\n\n")[0].split())
