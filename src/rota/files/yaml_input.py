"""The only reader of YAML: plain values, bounded while they are composed, without surprises of YAML 1.1.

Nodes are composed without recursion from the parser's events. Aliases are counted with all that they stand for, so
that a short text can't become a large document. A number in base 60 (`1:30:00`), 2, 8 or 16 (`010` is 8) or with
underscores is refused, since its writer meant something else, or another reader of YAML would.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from rota.core.errors import RotaError
from rota.files.json_input import MOST_DEPTH, MOST_DIGITS, BadValue, bounded, refuse_values

MOST_CHARACTERS = 16 << 20
MOST_VALUES = 1_000_000
"""Values in one document of a file."""
MOST_REPEATED = 10_000
"""Values that aliases may repeat in one document."""
_BASE_60 = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?", re.ASCII)
_OTHER_BASE = re.compile(r"[-+]?0[0-9a-fA-FxXbBoO_]*[0-9a-fA-F_]", re.ASCII)
"""A whole number that is not decimal to YAML 1.1 or 1.2, such as 010, 0x1F or 0b1."""
_MERGE = "tag:yaml.org,2002:merge"


class BadYamlValue(BadValue):
    """A value that is YAML and still refused, with its line, counted from 0."""

    def __init__(self, problem: str, line: int) -> None:
        super().__init__(problem)
        self.line = line


def parse_yaml(text: str, source: object, *, most_values: int = MOST_VALUES) -> object:
    """Return the plain values of one YAML document; an error names the source, the line and what is wrong."""
    import yaml

    if len(text) > MOST_CHARACTERS:
        raise RotaError(f"{source}: it has {len(text)} characters; at most {MOST_CHARACTERS} are read")
    try:
        found = _load(text, most_values)
    except BadValue as error:
        line = f":{error.line + 1}" if isinstance(error, BadYamlValue) else ""
        raise RotaError(f"{source}{line}: {error}") from error
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f":{error.problem_mark.line + 1}"
        raise RotaError(f"{source}{line}: not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise RotaError(f"{source}: not YAML: {' '.join(str(error).split())}") from error
    except (ValueError, OverflowError) as error:  # a date or number that does not exist, such as 2026-13-01
        raise RotaError(f"{source}: not YAML: {error}") from error
    except (RecursionError, TypeError) as error:  # a key that is a list of lists
        raise RotaError(f"{source}: it can't be read as plain values") from error
    refuse_values(found, source, infinite=True)
    return found


def _load(text: str, most_values: int) -> object:
    loader = _loader()(text)
    try:
        loader.most_values = most_values
        return loader.get_single_data()
    finally:
        loader.dispose()


@cache
def _loader() -> Any:
    """Make the loader class; PyYAML is imported with the first document."""
    import yaml

    parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class BoundedLoader(parser):  # type: ignore[misc]  # libyaml's or PyYAML's own
        most_values = MOST_VALUES

        def get_single_node(self) -> Any:
            return _Composer(self).document()

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            _refuse_repeated_keys(node)
            made: dict[Any, Any] = super().construct_mapping(node, deep)
            return made

        def construct_yaml_int(self, node: Any) -> int:
            value = str(self.construct_scalar(node))
            _refuse_base_60(value, node)
            _refuse_spelling(value, node, _OTHER_BASE)
            if len(value) > 80:
                raise _wrong(f"a whole number of {len(value)} digits; at most {MOST_DIGITS} digits", node)
            try:
                return bounded(int(super().construct_yaml_int(node)))
            except BadValue as error:
                raise _wrong(str(error), node) from error

        def construct_yaml_float(self, node: Any) -> float:
            value = str(self.construct_scalar(node))
            _refuse_base_60(value, node)
            _refuse_spelling(value, node)
            number = float(super().construct_yaml_float(node))
            if number != number or (number in (float("inf"), float("-inf")) and "inf" not in value.lower()):
                raise _wrong(f"{value[:40]} is not a finite number", node)
            return number

    BoundedLoader.add_constructor("tag:yaml.org,2002:int", BoundedLoader.construct_yaml_int)
    BoundedLoader.add_constructor("tag:yaml.org,2002:float", BoundedLoader.construct_yaml_float)
    return BoundedLoader


def _wrong(problem: str, node: Any) -> BadYamlValue:
    return BadYamlValue(problem, node.start_mark.line)


def _refuse_base_60(value: str, node: Any) -> None:
    if _BASE_60.fullmatch(value):
        raise _wrong(f"{value[:40]} is a number in base 60 to YAML; put it in quotes, or write a time like 1h30m", node)


def _refuse_spelling(value: str, node: Any, other_base: re.Pattern[str] | None = None) -> None:
    """Refuse numbers that readers of YAML read differently."""
    if other_base is not None and other_base.fullmatch(value):
        raise _wrong(f"{value[:40]} is not a decimal number to YAML; write it in decimal, or put it in quotes", node)
    if "_" in value:
        raise _wrong(f"{value[:40]} has underscores; write the number without them, or put it in quotes", node)


def _refuse_repeated_keys(node: Any) -> None:
    import yaml

    seen: set[str] = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
            if key.value in seen:
                raise _wrong(f"{key.value[:60]!r} is given twice; keep one", key)
            seen.add(key.value)


class _Composer:
    """Composes the nodes of one document from a parser's events, with a stack of its own."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._values = 0
        self._repeated = 0
        self._anchors: dict[str, tuple[Any, int] | None] = {}
        """By name: the node and how many values it stands for; None while it is open."""
        self._open: list[tuple[Any, str | None, int, list[Any]]] = []
        """Open collections: the node, its anchor, the count of values before it, and its children so far."""

    def document(self) -> Any:
        """Return the root node of the only document; None if there is none."""
        import yaml

        take = self._loader.get_event
        take()  # the start of the stream
        if isinstance(take(), yaml.StreamEndEvent):
            return None
        root = None
        while root is None:
            root = self._node(take())
        take()  # the end of the document
        if not isinstance(extra := take(), yaml.StreamEndEvent):
            raise _wrong("there is a second document; keep one", extra)
        return root

    def _node(self, event: Any) -> Any:
        """Take one event; return the root once it is complete."""
        import yaml

        match event:
            case yaml.AliasEvent():
                made = self._alias(event)
            case yaml.ScalarEvent():
                self._count(1, event)
                made = self._scalar(event)
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                self._begin(event)
                return None
            case _:
                made = self._end(event)
        if not self._open:
            return made
        self._open[-1][3].append(made)
        return None

    def _scalar(self, event: Any) -> Any:
        import yaml

        tag = event.tag
        if tag is None or tag == "!":
            tag = self._loader.resolve(yaml.ScalarNode, event.value, event.implicit)
        made = yaml.ScalarNode(tag, event.value, event.start_mark, event.end_mark, style=event.style)
        if event.anchor is not None:
            self._anchors[event.anchor] = (made, 1)
        return made

    def _begin(self, event: Any) -> None:
        import yaml

        if len(self._open) >= MOST_DEPTH:
            raise _wrong(f"it is nested too deeply; at most {MOST_DEPTH} mappings and lists inside each other", event)
        kind = yaml.SequenceNode if isinstance(event, yaml.SequenceStartEvent) else yaml.MappingNode
        tag = event.tag
        if tag is None or tag == "!":
            tag = self._loader.resolve(kind, None, event.implicit)
        made = kind(tag, [], event.start_mark, None, flow_style=event.flow_style)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        self._open.append((made, event.anchor, self._values, []))
        self._count(1, event)

    def _end(self, event: Any) -> Any:
        import yaml

        made, anchor, before, children = self._open.pop()
        made.end_mark = event.end_mark
        is_mapping = isinstance(made, yaml.MappingNode)
        made.value = list(zip(children[::2], children[1::2], strict=True)) if is_mapping else children
        if anchor is not None:
            self._anchors[anchor] = (made, self._values - before)
        return made

    def _alias(self, event: Any) -> Any:
        if event.anchor not in self._anchors:
            raise _wrong(f"the alias *{event.anchor[:60]} has no anchor", event)
        found = self._anchors[event.anchor]
        if found is None:
            raise _wrong(f"the alias *{event.anchor[:60]} repeats what it is in", event)
        node, values = found
        self._repeated += values
        if self._repeated > MOST_REPEATED:
            raise _wrong(f"its aliases repeat more than {MOST_REPEATED} values; write them out", event)
        self._count(values, event)
        return node

    def _count(self, values: int, event: Any) -> None:
        self._values += values
        if self._values > self._loader.most_values:
            raise _wrong(f"it has more than {self._loader.most_values} values", event)
