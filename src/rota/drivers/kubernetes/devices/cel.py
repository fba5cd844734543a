"""CEL expressions of device selectors, as Kubernetes evaluates them: compiled once, bounded in time.

A function that is not known is refused when the expression is compiled, by its name. Libraries for Python know neither
quantities and semantic versions nor optional fields, which selectors of devices are made of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from rota.drivers.kubernetes.devices.cel_functions import (
    FUNCTIONS,
    KNOWN_METHODS,
    METHODS,
    NAMESPACES,
    bounded,
    size_of,
)
from rota.drivers.kubernetes.devices.cel_syntax import (
    CelError,
    ElementOf,
    FunctionCall,
    ListOf,
    Literal,
    MapOf,
    Name,
    Select,
    Tree,
    parse,
)
from rota.drivers.kubernetes.devices.cel_types import MISSING, OptionalValue, is_less, same

MOST_STEPS = 50_000
"""Steps of one evaluation."""
_MACROS = {"all": 2, "exists": 2, "exists_one": 2, "filter": 2, "map": 2}
_OPERATORS = frozenset({"||", "&&", "?:", "!", "neg", "<", "<=", ">", ">=", "==", "!=", "in", "+", "-", "*", "/", "%"})
Scope = Mapping[str, object]


class CelProgram:
    """A compiled expression."""

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self._tree = parse(expression)
        for name in _unknown(self._tree):
            raise CelError(f"function {name} is not supported")

    def holds(self, variables: Scope) -> bool:
        """Return the value of an expression that must be true or false."""
        try:
            value = _Evaluation().value(self._tree, variables)
        except RecursionError as error:
            raise CelError("the expression is nested too deeply") from error
        except (TypeError, AttributeError, ValueError, ArithmeticError) as error:
            raise CelError(f"an argument has another type than its function needs: {error}") from error
        if not isinstance(value, bool):
            raise CelError(f"the value is {value!r:.40}; it must be true or false")
        return value


@lru_cache(maxsize=4096)
def compiled(expression: str) -> CelProgram:
    """Return the program of an expression; raise `CelError` if it can't be evaluated."""
    try:
        return CelProgram(expression)
    except RecursionError as error:
        raise CelError("the expression is nested too deeply") from error


def _qualified(tree: FunctionCall) -> str:
    """The name of a function, with its namespace."""
    return f"{tree.of.name}.{tree.name}" if isinstance(tree.of, Name) and tree.of.name in NAMESPACES else tree.name


def _unknown(tree: Tree) -> Iterator[str]:
    """Yield the functions of an expression that are not known."""
    match tree:
        case FunctionCall(name, args, of):
            qualified = _qualified(tree)
            known = qualified == "cel.bind" or (name == "has" if of is None else name in _MACROS)
            known = known or qualified in FUNCTIONS or (name in _OPERATORS if of is None else name in KNOWN_METHODS)
            if not known:
                yield qualified
            for each in (*args, *([] if of is None or qualified != name else [of])):
                yield from _unknown(each)
        case Select(of, _, _):
            yield from _unknown(of)
        case ElementOf(of, at, _):
            yield from _unknown(of)
            yield from _unknown(at)
        case ListOf(items):
            for each in items:
                yield from _unknown(each)
        case MapOf(pairs):
            for pair in pairs:
                for each in pair:
                    yield from _unknown(each)


class _Evaluation:
    """One evaluation, which counts its steps."""

    def __init__(self) -> None:
        self._steps = 0

    def value(self, tree: Tree, scope: Scope) -> Any:
        """Return the value of a tree."""
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise CelError(f"the evaluation takes more than {MOST_STEPS} steps")
        match tree:
            case Literal(value):
                return value
            case Name(name):
                if name not in scope:
                    raise CelError(f"{name} is not known")
                return scope[name]
            case Select(of, field, optional):
                return self._at(self.value(of, scope), field, optional)
            case ElementOf(of, at, optional):
                return self._at(self.value(of, scope), self.value(at, scope), optional)
            case ListOf(items):
                return [self.value(each, scope) for each in items]
            case MapOf(pairs):
                return {self.value(key, scope): self.value(each, scope) for key, each in pairs}
            case FunctionCall():
                return self._call(tree, scope)

    def _at(self, of: Any, key: Any, optional: bool) -> Any:
        """An element or field; of an optional value an optional one."""
        if isinstance(of, OptionalValue):
            return self._at(of.value, key, True) if of.is_there else MISSING
        if isinstance(of, list):
            is_there = type(key) is int and 0 <= key < len(of)
        elif isinstance(of, dict):
            is_there = key in of or getattr(of, "has_default", False)
        else:
            raise CelError(f"{of!r:.40} has no fields")
        if not is_there and not optional:
            raise CelError(f"no such key: {key!s:.60}")
        if optional:
            return OptionalValue(of[key]) if is_there and (isinstance(of, list) or key in of) else MISSING
        return of[key]

    def _call(self, tree: FunctionCall, scope: Scope) -> Any:
        name, args, of = tree
        if of is None:
            if name in ("||", "&&"):
                return self._logic(args, scope, decisive=name == "||")
            if name == "?:":
                return self.value(args[1 if self._flag(args[0], scope) else 2], scope)
            if name == "has":
                return self._has(args, scope)
            values = [self.value(each, scope) for each in args]
            return _operate(name, values) if name in _OPERATORS else FUNCTIONS[name](*values)
        qualified = _qualified(tree)
        if qualified == "cel.bind":
            variable, bound, body = args
            return self.value(body, {**scope, _variable(variable): self.value(bound, scope)})
        if qualified != name:
            return FUNCTIONS[qualified](*(self.value(each, scope) for each in args))
        if name in _MACROS:
            return self._over(name, self.value(of, scope), args, scope)
        return self._method(name, self.value(of, scope), [self.value(each, scope) for each in args])

    def _method(self, name: str, of: Any, values: list[Any]) -> Any:
        if name == "size":
            return size_of(of)
        kind = next((kind for kind in METHODS if isinstance(of, kind)), None)
        if kind is None or name not in METHODS[kind]:
            raise CelError(f"{of!r:.40} has no function {name}")
        return METHODS[kind][name](of, *values)

    def _flag(self, tree: Tree, scope: Scope) -> bool:
        value = self.value(tree, scope)
        if not isinstance(value, bool):
            raise CelError(f"{value!r:.40} is neither true nor false")
        return value

    def _logic(self, args: tuple[Tree, ...], scope: Scope, *, decisive: bool) -> bool:
        """Or and and: the decisive value of one side decides, even if the other side fails."""
        failed: CelError | None = None
        for each in args:
            try:
                if self._flag(each, scope) is decisive:
                    return decisive
            except CelError as error:
                failed = error
        if failed is not None:
            raise failed
        return not decisive

    def _has(self, args: tuple[Tree, ...], scope: Scope) -> bool:
        if len(args) != 1 or not isinstance(args[0], Select):
            raise CelError("has needs a field")
        of = self.value(args[0].of, scope)
        if isinstance(of, OptionalValue):
            of = of.value if of.is_there else {}
        if not isinstance(of, dict):
            raise CelError(f"{of!r:.40} has no fields")
        return args[0].field in of

    def _over(self, name: str, of: Any, args: tuple[Tree, ...], scope: Scope) -> Any:
        """The macros over lists and the keys of maps."""
        if len(args) not in (2, 3) or not isinstance(of, list | dict):
            raise CelError(f"{name} needs a list, a variable and an expression")
        variable = _variable(args[0])
        inner = [{**scope, variable: each} for each in of]
        match name:
            case "all" | "exists":
                return self._any_of(inner, args[1], decisive=name == "exists")
            case "exists_one":
                return sum(self._flag(args[1], each) for each in inner) == 1
            case "filter":
                return [each[variable] for each in inner if self._flag(args[1], each)]
        kept = inner if len(args) == 2 else [each for each in inner if self._flag(args[1], each)]
        return [self.value(args[-1], each) for each in kept]

    def _any_of(self, scopes: list[dict[str, object]], body: Tree, *, decisive: bool) -> bool:
        failed: CelError | None = None
        for scope in scopes:
            try:
                if self._flag(body, scope) is decisive:
                    return decisive
            except CelError as error:
                failed = error
        if failed is not None:
            raise failed
        return not decisive


def _variable(tree: Tree) -> str:
    if not isinstance(tree, Name):
        raise CelError("a variable's name is missing")
    return tree.name


def _operate(sign: str, values: list[Any]) -> Any:
    left = values[0]
    if sign == "!":
        return _negated(left)
    if sign == "neg":
        return -left if isinstance(left, float) else bounded(-left)
    right = values[1]
    match sign:
        case "==":
            return same(left, right)
        case "!=":
            return not same(left, right)
        case "<":
            return is_less(left, right)
        case ">":
            return is_less(right, left)
        case "<=":
            return not is_less(right, left)
        case ">=":
            return not is_less(left, right)
        case "in":
            return left in right if isinstance(right, dict) else any(same(left, each) for each in right)
    return _calculate(sign, left, right)


def _negated(value: Any) -> bool:
    if not isinstance(value, bool):
        raise CelError(f"{value!r:.40} is neither true nor false")
    return not value


def _calculate(sign: str, left: Any, right: Any) -> Any:
    if sign == "+" and type(left) is type(right) and isinstance(left, str | list):
        return (left + right)[: 1 << 14]
    if type(left) is not type(right) or type(left) not in (int, float):
        raise CelError(f"{left!r:.40} {sign} {right!r:.40} makes no sense")
    if sign in "/%" and not right:
        raise CelError("division by zero")
    match sign:
        case "+":
            found = left + right
        case "-":
            found = left - right
        case "*":
            found = left * right
        case "/" if isinstance(left, int):
            found = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        case "/":
            found = left / right
        case _:
            found = abs(left) % abs(right) * (-1 if left < 0 else 1)
    return bounded(found) if isinstance(found, int) else found
