"""Reads a file of text, YAML or JSON into plain values; every way to fail becomes one line naming the file.

Only plain values come out, within the bounds of `json_input` and `yaml_input`, and a key given twice is refused rather
than silently won by the last.
"""

from __future__ import annotations

from pathlib import Path

from rota.core.errors import RotaError
from rota.files.json_input import parse_json
from rota.files.yaml_input import MOST_VALUES as MOST_YAML_VALUES
from rota.files.yaml_input import parse_yaml


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
    if path.suffix == ".json":
        return parse_json(text, path, most_values=MOST_YAML_VALUES)
    return parse_yaml(text, path)
