from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.drivers.kubernetes.devices.cel import compiled
from rota.drivers.kubernetes.devices.cel_syntax import CelError
from rota.drivers.kubernetes.devices.cel_types import quantity_of, version_of
from rota.drivers.kubernetes.devices.device_facts import DomainMap

ATTRIBUTES = {"model": "a100", "index": 3, "healthy": True, "cuda": version_of("12.4.0-rc.1")}
DEVICE = {
    "driver": "gpu.example.com",
    "attributes": DomainMap({"gpu.example.com": ATTRIBUTES, "k8s.io": {"pcieRoot": "pci0000:00"}}),
    "capacity": DomainMap({"gpu.example.com": {"memory": quantity_of("80Gi")}}),
    "allowMultipleAllocations": False,
}
GPU = 'device.attributes["gpu.example.com"]'


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("true", True),
        ('device.driver == "gpu.example.com"', True),
        (f'{GPU}.model == "a100"', True),
        (f'{GPU}["model"] in ["h100", "b200"]', False),
        (f'{GPU}.model.startsWith("a") && !({GPU}.model.endsWith("x"))', True),
        (f"{GPU}.index >= 3 && {GPU}.index % 2 == 1", True),
        (f"-{GPU}.index + 2 * 4 == 5", True),
        (f"{GPU}.healthy", True),
        (f"{GPU}.healthy == 1", False),
        ('device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0', True),
        ('device.capacity["gpu.example.com"].memory.isLessThan(quantity("80G"))', False),
        (f'{GPU}.cuda.isGreaterThan(semver("12.3.9"))', True),
        (f'{GPU}.cuda.isLessThan(semver("12.4.0"))', True),
        (f'{GPU}.cuda.compareTo(semver("v12.4", true)) < 0', True),
        ('has(device.attributes["none.example.com"].model)', False),
        (f"has({GPU}.model) && !has({GPU}.other)", True),
        ('device.attributes["none.example.com"].?model.orValue("x") == "x"', True),
        ('device.attributes[?"none.example.com"].?model.hasValue()', False),
        (f'cel.bind(gpu, {GPU}, gpu.index == 3 && gpu.model == "a100")', True),
        (f'["a", "h"].exists(letter, {GPU}.model.contains(letter))', True),
        ("[1, 2, 3].all(n, n > 1)", False),
        ("[1, 2, 3].filter(n, n > 1).map(n, n * 2) == [4, 6]", True),
        ("{'a': 1}.a == 1 && 'a' in {'a': 1}", True),
        (f'{GPU}.model.matches("^a[0-9]+$")', True),
        ('"A,b".lowerAscii().split(",") == ["a", "b"]', True),
        ("(1 > 2 ? 'x' : 'y') == 'y'", True),
        ("1.5 < 2 && 0x10 == 16 && 7 / 2 == 3 && -7 / 2 == -3", True),
        ('sets.contains(["a", "b"], ["a"]) && !sets.intersects([1], [2])', True),
        (f"{GPU}.missing == 1 || true", True),
        ('r"\\d" == "\\\\d" // a comment', True),
    ],
)
def test_expressions_have_the_values_of_kubernetes(expression: str, value: bool) -> None:
    assert compiled(expression).holds({"device": DEVICE}) is value


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (f"{GPU}.missing == 1", "no such key: missing"),
        ('timestamp("2020-01-01T00:00:00Z") == 1', "function timestamp is not supported"),
        ('"a".format([])', "function format is not supported"),
        ("math.greatest(1, 2) == 2", "function greatest is not supported"),
        ("device.driver ==", "missing"),
        ("1 == 1)", "not expected"),
        ("'a' + 1 == 2", "makes no sense"),
        ("device.driver", "must be true or false"),
        ("9223372036854775807 + 1 > 0", "overflows"),
        ("1 / 0 == 1", "division by zero"),
        ('quantity("many") == quantity("1")', "is no quantity"),
        ("other == 1", "other is not known"),
        ("(" * 100 + "true" + ")" * 100, "nested more than"),
        ("true" + " || true" * 5000, "characters"),
        ('"aaaaaaaaaaaaaaaaaaaaaaaaaaaaab".matches("(a+)+$")', "repetitions within others"),
        ('"a".matches("(a)(?=b)")', "assertions"),
        ("[1,2,3,4,5,6,7,8].all(a, " * 7 + "true" + ")" * 7, "steps"),
    ],
)
def test_what_fails_is_said_in_words(expression: str, words: str) -> None:
    with pytest.raises(CelError, match=words):
        compiled(expression).holds({"device": DEVICE})


def test_a_hostile_expression_ends_soon() -> None:
    since_s = time.process_time()
    lists = "[1,2,3,4,5,6,7,8,9]"
    hostile = "".join(f"{lists}.all(v{number}, " for number in range(12)) + "true" + ")" * 12
    with pytest.raises(CelError, match="steps"):
        compiled(hostile).holds({})
    assert time.process_time() - since_s < 5


@given(
    st.text(max_size=60)
    | st.lists(
        st.sampled_from(
            [
                "device",
                ".",
                "(",
                ")",
                "[",
                "]",
                "1",
                "'a'",
                "&&",
                "!",
                "-",
                "?",
                ":",
                "in",
                "size",
                "has",
                ",",
                "{",
                "}",
            ]
        ),
        max_size=25,
    ).map(" ".join)
)
def test_no_text_breaks_the_evaluation(text: str) -> None:
    with contextlib.suppress(CelError):
        assert compiled(text).holds({"device": DEVICE}) in (True, False)
