"""Causes of failures by their signs: a corpus of logs, the order of signs, and tables of users."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from health.held_out_corpus import HELD_OUT
from health.held_out_later import HELD_OUT_LATER
from health.held_out_third import HELD_OUT_THIRD
from health.log_corpus import CORPUS, LoggedFailure
from rota.core.errors import RotaError
from rota.health.causes import Blame, Remedy, built_in_causes, diagnose, parse_causes, read_causes
from rota.health.presets import PRESETS

ALL = (*CORPUS, *HELD_OUT, *HELD_OUT_LATER, *HELD_OUT_THIRD)


@pytest.mark.parametrize("logged", ALL, ids=[f"{at}-{each.cause}" for at, each in enumerate(ALL)])
def test_cause_of_a_logged_failure(logged: LoggedFailure) -> None:
    found = diagnose(logged.output, exit_code=logged.exit_code, signal=logged.signal)

    assert found is not None
    assert (found.cause.name, bool(found.evidence)) == (logged.cause, True)


def test_every_cause_is_in_the_corpus_but_those_that_only_tests_of_devices_report() -> None:
    assert {cause.name for cause in built_in_causes()} - {each.cause for each in ALL} == {"silent-corruption"}


def test_names_are_unique_and_short_enough_for_the_database() -> None:
    names = [cause.name for cause in built_in_causes()]

    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= 32


def test_every_class_of_the_philly_study_has_a_cause() -> None:
    classes = {cause.philly for cause in built_in_causes()}

    study = {each.name.replace("-", " ").lower() for each in PRESETS["philly"].job_classes}
    known = {re.sub(r"[^a-z ]", "", name.lower()) for name in classes}
    unknown = {name for name in study if not any(set(name.split()[:2]) & set(each.split()) for each in known)}
    assert unknown == set()


def test_output_that_succeeded_so_far_tells_nothing() -> None:
    assert (
        diagnose("epoch 1 loss 0.3\nvalidation accuracy 0.91\nNCCL INFO Bootstrap : Using eth0\n", exit_code=1) is None
    )


def test_xid_of_the_driver_tells_more_than_the_output() -> None:
    found = diagnose("RuntimeError: something odd", exit_code=1, xids=[79])

    assert found is not None
    assert (found.cause.name, found.cause.blame, found.cause.remedy) == ("gpu-lost", Blame.NODE, Remedy.AFTER_REPAIR)


def test_table_of_a_user_comes_first(tmp_path: Path) -> None:
    table = tmp_path / "ours.toml"
    table.write_text(
        '[[cause]]\nname = "licence"\nsays = "no licence is free"\ntier = 2\nblame = "unknown"\nremedy = "retry"\n'
        "patterns = ['license server .* busy']\n",
        encoding="utf-8",
    )

    found = diagnose("license server a1 is busy\nKeyError: 'x'\nlicense server a1 is busy\n", causes=read_causes(table))

    assert found is not None
    assert found.cause.name == "licence"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[cause", "not TOML"),
        ('[[cause]]\nname = "x"\nsays = "y"\ntier = 9\n', "tier is 9"),
        ('[[cause]]\nname = "x"\nsays = "y"\ntier = 2\nblame = "me"\nremedy = "retry"\n', "blame is 'me'"),
        (
            '[[cause]]\nname = "x"\nsays = "y"\ntier = 2\nblame = "job"\nremedy = "retry"\npatterns = ["("]\n',
            "no regular",
        ),
        ('[[cause]]\nname = "x"\nsayz = "y"\n', "no field 'sayz'; did you mean 'says'"),
    ],
)
def test_mistakes_in_a_table_are_named(text: str, said: str) -> None:
    with pytest.raises(RotaError, match=re.escape(said)):
        parse_causes(text, "ours.toml")


@pytest.mark.attack(
    "writes an output that regular expressions take long for", stopped_by="short lines, linear patterns"
)
def test_hostile_output_is_searched_quickly() -> None:
    for piece in ("HDFS ", "a.", "Xid ", "checkpoint ", "NVRM: Xid (", "OOM when allocating tensor "):
        begun = time.process_time()

        diagnose((piece * 4096)[:4096] + "\n" + (piece * 4096)[:65536], exit_code=1)

        assert time.process_time() - begun < 1.0, piece
