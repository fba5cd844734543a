"""Sources of users' policies, one of each family, and ways to run and to find them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rota.policies import DeclaredPolicy, find_policy

HEAD = "import math, random\nimport numpy as np\nfrom rota.policies import *\nfrom dataclasses import dataclass\n"
ODD = """
import sys
from fractions import Fraction

def knot():
    found = []
    found.append(found)
    return found

class Mute(Exception):
    def __str__(self): raise ValueError("no text")

class Hidden:
    def __repr__(self): raise Mute

def fail(error):
    raise error
"""
"""Values and errors that are hard to report."""
TRACE = """\
id,submit_s,gpus,work,work_unit,model
a,0,1,600,seconds,alexnet
b,0,2,900,seconds,alexnet
c,60,2,300,seconds,resnet50
d,61,1,300,seconds,vgg16
e,62,1,300,seconds,vgg16
"""

ORDERING = """
@ordering("p", preempts=True)
def p(job, now_s):
    return {answer}
"""
ROUNDS = """
@rounds("p")
class p(DefaultShareRule):
    def shares(self, question):
        seq = question.jobs[0].seq
        return {answer}
"""
SELECTION = """
@selection("p")
class p(DefaultSelectionRule):
    def select(self, context):
        live = next(iter(context.waiting), None)
        if live is None:
            return Selection()
        return {answer}
"""
ELASTIC = """
@elastic("p")
class p(DefaultSizeRule):
    def plan(self, question):
        if not question.candidates:
            return SizePlan({{}})
        seq = question.candidates[0].seq
        return {answer}
"""
COLOCATION = """
@colocation("p")
class p(DefaultColocationRule):
    def admit(self, live, hosts, kind, now_s):
        return {answer}
"""
LEARNED = """
@learned("p")
class p(DefaultChooser):
    def choose(self, room, live, now_s):
        return {answer}
"""
FAMILIES = {
    "ordering": (ORDERING, "p()"),
    "rounds": (ROUNDS, "p.shares()"),
    "selection": (SELECTION, "p.select()"),
    "elastic": (ELASTIC, "p.plan()"),
    "colocation": (COLOCATION, "p.admit()"),
    "learned": (LEARNED, "p.choose()"),
}


def refused(run: Callable[[str], tuple[int, list[str]]], text: str) -> str:
    code, printed = run(text)
    errors = [line for line in printed if line.startswith("error:")]
    assert code == 2, printed
    assert len(errors) == 1
    assert printed[-1] == errors[0], "the error is the last line, and nothing follows it"
    return errors[0]


def found(folder: Path, text: str) -> DeclaredPolicy:
    path = folder / "mine.py"
    path.write_text(HEAD + text)
    return find_policy(f"{path}:p")[0]
