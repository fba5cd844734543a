"""What goes wrong, by whose fault: the user's (`RotaError`), the world's (`Unavailable`), ours (`InvariantBroken`)."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable

MOST_COMPARED = 256
"""Characters up to which a wrong word is compared with the known ones: the time grows with the square of the length."""


class RotaError(Exception):
    """A user's mistake; the message names the thing, the value and the way out, on one line."""


class PlanRefused(RotaError):
    """A policy asked for something that would break the cluster; nothing of its plan was carried out."""


class Unavailable(Exception):
    """A failure outside (a server, a disk, a network); a later retry may succeed."""


class BuiltInFault(Exception):
    """A fault of ours that ends one run, such as a built-in policy that never settles; one line, and status 1."""


class InvariantBroken(Exception):
    """A bug of ours: the state contradicts itself. Carries what is known and stops the process."""


def written(value: object, by: Callable[[object], str] = repr) -> str:
    """A value of a user's code on one line, by `repr` or `str`; empty if the user's own such function fails."""
    try:
        return " ".join(by(value).split())
    except (Exception, SystemExit):  # the code is the user's, and must not hide the mistake that is reported
        return ""


def did_you_mean(value: str, known: Iterable[str]) -> str:
    """The end of an error message: the nearest known word, or the list of them."""
    words = sorted(known)
    near = difflib.get_close_matches(value, words) if len(value) <= MOST_COMPARED else []
    if near:
        swapped = [word for word in near if sorted(word) == sorted(value)]
        return f"did you mean {(swapped or near)[0]!r}?"
    return f"known: {', '.join(words)}" if words else "there are none"
