"""The options of `sbatch`: their names, which of them take a value, and what becomes of those without a counterpart."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rota.core.errors import RotaError, did_you_mean

SHORT = {
    "A": "account",
    "a": "array",
    "b": "begin",
    "B": "extra-node-info",
    "c": "cpus-per-task",
    "C": "constraint",
    "d": "dependency",
    "D": "chdir",
    "e": "error",
    "F": "nodefile",
    "G": "gpus",
    "H": "hold",
    "i": "input",
    "J": "job-name",
    "k": "no-kill",
    "L": "licenses",
    "m": "distribution",
    "M": "clusters",
    "N": "nodes",
    "n": "ntasks",
    "o": "output",
    "O": "overcommit",
    "p": "partition",
    "q": "qos",
    "Q": "quiet",
    "s": "oversubscribe",
    "S": "core-spec",
    "t": "time",
    "v": "verbose",
    "w": "nodelist",
    "W": "wait",
    "x": "exclude",
}
FLAGS = frozenset(
    {"hold", "no-kill", "overcommit", "quiet", "oversubscribe", "verbose", "wait", "requeue", "no-requeue", "parsable"}
    | {
        "contiguous",
        "exclusive",
        "spread-job",
        "use-min-nodes",
        "ignore-pbs",
        "reboot",
        "test-only",
        "kill-on-invalid-dep",
    }
)
"""Options without a value, or with one only after `=`."""
UNDERSTOOD = frozenset(
    {"account", "array", "chdir", "container-image", "cpus-per-gpu", "cpus-per-task", "dependency", "exclude"}
    | {
        "exclusive",
        "export",
        "gpus",
        "gpus-per-node",
        "gpus-per-task",
        "gres",
        "hold",
        "job-name",
        "mem",
        "mem-per-cpu",
    }
    | {"mem-per-gpu", "nodes", "no-requeue", "ntasks", "ntasks-per-node", "requeue", "signal", "test-only", "time"}
    | {"wait", "wckey"}
)
SILENT = frozenset({"comment", "parsable", "quiet", "verbose", "ntasks-per-core", "hint", "open-mode"})
"""What changes nothing that matters here."""
HINTS = {
    "begin": "submit it with --held, and release it then",
    "cluster-constraint": "",
    "clusters": "name the manager with --server",
    "constraint": "name acceptable device types with --gpu",
    "deadline": "give `deadline` in a job file",
    "error": "`rota logs` shows the output",
    "input": "redirect it in the script",
    "licenses": "",
    "mail-type": "give --notify end,fail",
    "mail-user": "",
    "nice": "give a lower --priority",
    "nodelist": "nodes are chosen by the policy; --exclude keeps nodes out",
    "output": "`rota logs` shows the output",
    "partition": "name device types with --gpu, or a tenant with --tenant",
    "priority": "give --priority",
    "qos": "give --priority; limits and shares belong to tenants",
    "reservation": "",
    "tmp": "",
}
"""Options without a counterpart, and what to use instead."""


@dataclass(frozen=True, slots=True)
class SbatchOption:
    """One option of a script, and the line in which it stands."""

    name: str
    value: str
    line: int
    text: str


def options_in(text: str, path: Path) -> Iterator[SbatchOption]:
    """Yield the options of the `#SBATCH` lines before the first command."""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            return
        if not line.startswith("#SBATCH"):
            continue
        try:
            words = shlex.split(line.removeprefix("#SBATCH"), comments=True)
        except ValueError as error:
            raise RotaError(f"{path}:{number}: {error} in {line[:60]!r}") from error
        while words:
            yield _next(words, number, path)


def _next(words: list[str], line: int, path: Path) -> SbatchOption:
    """Take the next option off the words of a line."""
    word = words.pop(0)
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        value = value if equals or name in FLAGS else _value(words, word, line, path)
        return SbatchOption(name, value, line, word if equals or not value else f"{word} {value}")
    if not word.startswith("-") or len(word) < 2:
        raise RotaError(f"{path}:{line}: {word[:40]!r} is not an option; #SBATCH lines have options only")
    found = SHORT.get(word[1])
    if found is None:
        raise RotaError(f"{path}:{line}: sbatch has no option -{word[1]}; {did_you_mean(word[1], SHORT)}")
    if found in FLAGS:
        return SbatchOption(found, "", line, word)
    value = word[2:].removeprefix("=") or _value(words, word, line, path)
    return SbatchOption(found, value, line, f"{word[:2]} {value}")


def _value(words: list[str], name: str, line: int, path: Path) -> str:
    if not words:
        raise RotaError(f"{path}:{line}: {name} has no value")
    return words.pop(0)
