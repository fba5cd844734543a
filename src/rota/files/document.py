"""Reads a file of text, YAML or JSON into plain values; every way to fail becomes one line naming the file.

Only plain values come out: YAML is read by a loader that knows no Python objects, and a key given twice
is refused rather than silently won by the last.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rota.core.errors import RotaError

if TYPE_CHECKING:
    import yaml


def read_text(path: Path) -> str:
    """The file's text; a byte-order mark is dropped."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise RotaError(f"{path}: not a text file; byte {error.start} is not UTF-8") from error
    except OSError as error:
        raise RotaError(f"{path}: {error.strerror}; check the name and whether you may read it") from error
    except ValueError as error:
        raise RotaError(f"not a file name: {str(path)!r}: {error}") from error


def read_document(path: Path) -> object:
    """The plain values in a file: JSON if its name ends so, otherwise YAML."""
    text = read_text(path)
    return _from_json(text, path) if path.suffix == ".json" else parse_yaml(text, path)


def _from_json(text: str, path: Path) -> object:
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise RotaError(f"{path}:{error.lineno}: not JSON: {error.msg.lower()}") from error
    except _KeyTwice as error:
        raise RotaError(f"{path}: {error}") from error
    except RecursionError as error:
        raise RotaError(f"{path}: it is nested too deeply") from error


def parse_yaml(text: str, path: Path) -> object:
    """The plain values in YAML text that was found in a file."""
    import yaml

    try:
        return yaml.load(text, Loader=_loader())
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f":{error.problem_mark.line + 1}"
        raise RotaError(f"{path}{line}: not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise RotaError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    except ValueError as error:  # a date or number in the right form that does not exist, such as 2026-13-01
        raise RotaError(f"{path}: not YAML: {error}") from error
    except RecursionError as error:
        raise RotaError(f"{path}: it is nested too deeply") from error


class _KeyTwice(ValueError):
    """A mapping gives the same key twice."""


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    known: dict[str, object] = {}
    for key, value in pairs:
        if key in known:
            raise _KeyTwice(f"{key!r} is given twice; keep one")
        known[key] = value
    return known


@cache
def _loader() -> type[yaml.SafeLoader]:
    """PyYAML's safe loader, made to refuse a repeated key."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen: set[str] = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                    if key.value in seen:
                        problem = f"{key.value!r} is given twice; keep one"
                        raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                    seen.add(key.value)
            return super().construct_mapping(node, deep)

    return Loader
