"""The grammar of CEL: an expression becomes a tree. Length and depth are limited, for users write expressions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, TypeAlias, TypeVar

from rota.core.errors import RotaError

T = TypeVar("T")
LONGEST = 10 * 1024
DEEPEST = 60


class CelError(RotaError):
    """An expression that can't be read, or whose evaluation fails."""


class Literal(NamedTuple):
    """A constant."""

    value: object


class Name(NamedTuple):
    """A variable."""

    name: str


class Select(NamedTuple):
    """A field of a value; `optional` gives an optional value."""

    of: Tree
    field: str
    optional: bool = False


class ElementOf(NamedTuple):
    """An element of a list or map."""

    of: Tree
    at: Tree
    optional: bool = False


class FunctionCall(NamedTuple):
    """A function, an operator or, with `of`, a method."""

    name: str
    args: tuple[Tree, ...]
    of: Tree | None = None


class ListOf(NamedTuple):
    """A list."""

    items: tuple[Tree, ...]


class MapOf(NamedTuple):
    """A map."""

    items: tuple[tuple[Tree, Tree], ...]


Tree: TypeAlias = Literal | Name | Select | ElementOf | FunctionCall | ListOf | MapOf

_TOKEN = re.compile(
    r"""\s*(?:(?P<comment>//[^\n]*)
    |(?P<number>0[xX][0-9a-fA-F]+[uU]?|\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?|\d+[uU]?)
    |(?P<text>[rR]?(?:\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'))
    |(?P<name>[_a-zA-Z][_a-zA-Z0-9]*)
    |(?P<sign>\|\||&&|<=|>=|==|!=|\.\?|\[\?|[-+*/%!<>?:.,()\[\]{}]))""",
    re.VERBOSE | re.ASCII,
)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|([0-3][0-7]{2})|(.))")
_WORDS: dict[str, object] = {"true": True, "false": False, "null": None}
_LEVELS: tuple[frozenset[str], ...] = (
    frozenset({"||"}),
    frozenset({"&&"}),
    frozenset({"<", "<=", ">", ">=", "==", "!=", "in"}),
    frozenset({"+", "-"}),
    frozenset({"*", "/", "%"}),
)
"""Binary operators, the weakest first."""


class CelToken(NamedTuple):
    """A token: its kind and text."""

    kind: str
    text: str


def parse(expression: str) -> Tree:
    """Parse an expression; raise `CelError` with the place of a mistake."""
    if len(expression) > LONGEST:
        raise CelError(f"the expression has {len(expression)} characters; {LONGEST} are allowed")
    return _Parser(_tokens(expression)).whole()


def _tokens(expression: str) -> list[CelToken]:
    found = []
    at, end = 0, len(expression.rstrip())
    while at < end:
        match = _TOKEN.match(expression, at)
        if match is None or match.lastgroup is None:
            raise CelError(f"{expression[at : at + 20].strip()!r} is not understood")
        if match.lastgroup != "comment":
            found.append(CelToken(match.lastgroup, match.group(match.lastgroup)))
        at = match.end()
    return [*found, CelToken("end", "")]


class _Parser:
    """A parser by recursive descent."""

    def __init__(self, tokens: list[CelToken]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    @property
    def _now(self) -> CelToken:
        return self._tokens[self._at]

    def _take(self, *texts: str) -> str | None:
        """Take the present token if it is one of these signs or words."""
        if self._now.kind in ("sign", "name") and self._now.text in texts:
            self._at += 1
            return self._tokens[self._at - 1].text
        return None

    def _expect(self, text: str) -> None:
        if self._take(text) is None:
            raise CelError(f"{text!r} is missing before {self._now.text or 'the end'!r}")

    def whole(self) -> Tree:
        """Parse everything."""
        found = self._expression()
        if self._now.kind != "end":
            raise CelError(f"{self._now.text!r} is not expected")
        return found

    def _expression(self) -> Tree:
        self._depth += 1
        if self._depth > DEEPEST:
            raise CelError(f"the expression is nested more than {DEEPEST} times")
        found = self._binary(0)
        if self._take("?"):
            yes = self._binary(0)
            self._expect(":")
            found = FunctionCall("?:", (found, yes, self._expression()))
        self._depth -= 1
        return found

    def _binary(self, level: int) -> Tree:
        if level == len(_LEVELS):
            return self._unary()
        found = self._binary(level + 1)
        while (sign := self._take(*_LEVELS[level])) is not None:
            found = FunctionCall(sign, (found, self._binary(level + 1)))
        return found

    def _unary(self) -> Tree:
        signs = []
        while (sign := self._take("!", "-")) is not None:
            signs.append(sign)
        found = self._member()
        for sign in reversed(signs):
            if sign == "-" and isinstance(found, Literal) and isinstance(found.value, int | float):
                found = Literal(-found.value)
            else:
                found = FunctionCall("neg" if sign == "-" else "!", (found,))
        return found

    def _member(self) -> Tree:
        found = self._primary()
        steps = 0
        while (sign := self._take(".", ".?", "[", "[?")) is not None:
            steps += 1
            if steps > DEEPEST:
                raise CelError(f"more than {DEEPEST} fields follow each other")
            if sign.startswith("["):
                found = ElementOf(found, self._expression(), optional=sign == "[?")
                self._expect("]")
                continue
            name = self._identifier()
            if sign == "." and self._take("("):
                found = FunctionCall(name, self._until(")", self._expression), found)
            else:
                found = Select(found, name, optional=sign == ".?")
        return found

    def _identifier(self) -> str:
        if self._now.kind != "name":
            raise CelError(f"a name is missing before {self._now.text or 'the end'!r}")
        self._at += 1
        return self._tokens[self._at - 1].text

    def _primary(self) -> Tree:
        kind, text = self._now
        if self._take("("):
            found = self._expression()
            self._expect(")")
            return found
        if self._take("["):
            return ListOf(self._until("]", self._expression))
        if self._take("{"):
            return MapOf(self._until("}", self._entry))
        self._take(".")
        if kind in ("number", "text"):
            self._at += 1
            return Literal(_number(text) if kind == "number" else _text(text))
        name = self._identifier()
        if name in _WORDS:
            return Literal(_WORDS[name])
        return FunctionCall(name, self._until(")", self._expression)) if self._take("(") else Name(name)

    def _entry(self) -> tuple[Tree, Tree]:
        key = self._expression()
        self._expect(":")
        return key, self._expression()

    def _until(self, closing: str, one: Callable[[], T]) -> tuple[T, ...]:
        found: list[T] = []
        while self._take(closing) is None:
            if found:
                self._expect(",")
                if self._take(closing):
                    break
            found.append(one())
        return tuple(found)


def _number(text: str) -> int | float:
    plain = text.rstrip("uU")
    if plain[:2].lower() == "0x":
        return int(plain, 16)
    return int(plain[:25]) if plain.isdigit() else float(plain)


def _text(token: str) -> str:
    is_raw = token[0] in "rR"
    inner = token[2:-1] if is_raw else token[1:-1]
    return inner if is_raw else _ESCAPE.sub(_unescaped, inner)


def _unescaped(match: re.Match[str]) -> str:
    code, wide, octal, single = match.groups()
    if code or wide:
        return chr(int(code or wide, 16))
    if octal:
        return chr(int(octal, 8))
    return _ESCAPES.get(single, single)
