"""Reads a batch script of Slurm as the values of a job file, and names what of it has no effect.

Slurm runs a batch script once, and `srun` in all tasks. Here the script runs in each task, and `srun` runs its command
there: for scripts of one task, and for those whose work is one `srun`, that is the same.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rota.core.errors import RotaError
from rota.files.sbatch.options import HINTS, SILENT, UNDERSTOOD, SbatchOption, options_in
from rota.files.sbatch.stand_ins import STAND_INS, started

Json = dict[str, Any]
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_MEMORY = re.compile(r"(\d{1,12})([KMGT]?)B?", re.IGNORECASE | re.ASCII)
_TIME = re.compile(r"(?:(\d{1,5})-)?(\d{1,7})(?::(\d{1,5}))?(?::(\d{1,5}))?", re.ASCII)
_HOSTS = re.compile(r"([^\[\],]+)\[([0-9,-]+)\]", re.ASCII)
MOST_HOSTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchScript:
    """A batch script as a job, with what belongs to its submission."""

    job: Json
    array: str | None = None
    """The numbers of its jobs, and after `%` how many may run at once."""
    held: bool = False
    wait: bool = False
    dry_run: bool = False
    """Whether nothing is to be submitted, as with `--test-only`."""
    env_from_shell: str | None = None
    """What of the shell's variables is passed on; None: as usual."""
    notes: tuple[str, ...] = ()
    """What of it has no effect here, or another."""


@dataclass(slots=True)
class _Asked:
    """The options as they are read, by name; a later one of a name wins, as with `sbatch`."""

    path: Path
    by_name: dict[str, SbatchOption] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def text(self, name: str) -> str | None:
        found = self.by_name.get(name)
        return None if found is None else found.value

    def count(self, name: str) -> int | None:
        found = self.by_name.get(name)
        if found is None:
            return None
        if not re.fullmatch(r"[0-9]{1,9}", found.value, re.ASCII) or not int(found.value):
            raise self.wrong(name, "a number above 0")
        return int(found.value)

    def wrong(self, name: str, wanted: str) -> RotaError:
        option = self.by_name[name]
        return RotaError(f"{self.path}:{option.line}: {option.text[:60]} is not understood; it must be {wanted}")


def is_batch_script(path: Path) -> bool:
    """Whether a file is a script with `#SBATCH` lines."""
    head = _head(path)
    return head.startswith("#!") and re.search(r"^#SBATCH\b", head, re.MULTILINE) is not None


def is_plain_script(path: Path) -> bool:
    """Whether a file is a shell or Python script; `sbatch` takes those without options too."""
    program = Path((_interpreter(_head(path)) or [""])[0]).name
    return program in _SHELLS or program.startswith("python")


def _head(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(1 << 16)
    except OSError:
        return ""


def read_batch_script(path: Path, arguments: list[str]) -> BatchScript:
    """Read a script; raise a `RotaError` that names the line of what can't be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RotaError(f"{path}: it can't be read: {error}") from error
    return batch_script(text, path, arguments)


def batch_script(text: str, path: Path, arguments: list[str]) -> BatchScript:
    """Return the script of a text; `path` is how errors name it."""
    text = text.replace("\r\n", "\n")
    asked = _Asked(path)
    for option in options_in(text, path):
        if option.name in UNDERSTOOD:
            asked.by_name[option.name] = option
        elif option.name not in SILENT:
            hint = HINTS.get(option.name, "")
            asked.notes.append(f"{path}:{option.line}: {option.text} has no effect here{f'; {hint}' if hint else ''}")
    job = _job(asked)
    job["run"] = _command(path, text, arguments, job.get("workers", 1) > 1, asked)
    _environment(asked, job)
    export = asked.text("export")
    return BatchScript(
        job=job,
        array=_array(asked),
        held="hold" in asked.by_name,
        wait="wait" in asked.by_name,
        dry_run="test-only" in asked.by_name,
        env_from_shell=None if export is None else _passed_on(export),
        notes=tuple(asked.notes),
    )


def _job(asked: _Asked) -> Json:
    job: Json = {"name": _name(asked)}
    nodes, per_node = _nodes(asked), asked.count("ntasks-per-node")
    tasks = asked.count("ntasks") or (nodes or 1) * (per_node or 1)
    on_a_node = per_node or math.ceil(tasks / (nodes or 1))
    if tasks > 1:
        job["workers"] = tasks
    resources = _resources(asked, tasks, on_a_node)
    if resources:
        job["resources"] = resources
    given: Json = {
        "tenant": asked.text("account"),
        "workdir": asked.text("chdir"),
        "image": asked.text("container-image"),
        "time_limit": _time_limit(asked),
        "depends_on": _dependencies(asked),
        "exclude_nodes": _hosts(asked),
        "checkpoint": _checkpoint(asked),
        "exclusive": True if "exclusive" in asked.by_name else None,
        "max_restarts": 0 if "no-requeue" in asked.by_name else None,
        "labels": None if asked.text("wckey") is None else {"project": asked.text("wckey")},
    }
    return {**job, **{name: value for name, value in given.items() if value is not None}}


def _name(asked: _Asked) -> str:
    """The job's name: that of the script by default, and of characters that a name may have."""
    given = asked.text("job-name") or asked.path.name
    found = re.sub(r"[^A-Za-z0-9._-]+", "-", given).lstrip("._-")[:128] or "sbatch"
    if found != given and "job-name" in asked.by_name:
        line = asked.by_name["job-name"].line
        asked.notes.append(f"{asked.path}:{line}: --job-name={given[:60]}: the job is named {found}")
    return found


def _nodes(asked: _Asked) -> int | None:
    text = asked.text("nodes")
    if text is None:
        return None
    span = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", text, re.ASCII)
    if span is None or not int(span[1]):
        raise asked.wrong("nodes", "a number, or least-most")
    if span[2] is not None and span[2] != span[1]:
        asked.notes.append(f"{asked.path}: --nodes={text}: it gets {span[1]}; for between two sizes use `elastic`")
    return int(span[1])


def _resources(asked: _Asked, tasks: int, on_a_node: int) -> Json:
    gpus, kind = _gpus(asked, tasks, on_a_node)
    cpus = asked.count("cpus-per-task")
    if cpus is None and (per_gpu := asked.count("cpus-per-gpu")) is not None:
        cpus = per_gpu * max(gpus, 1)
    found: Json = {}
    if gpus:
        found["gpus"] = gpus
    if kind:
        found["gpu"] = [kind]
    if cpus:
        found["cpus"] = cpus
    memory = _memory(asked, cpus or 1, gpus, on_a_node)
    if memory:
        found["memory"] = memory
    return found


def _gpus(asked: _Asked, tasks: int, on_a_node: int) -> tuple[int, str]:
    """Return the GPUs of a task, and their type."""
    for name, among in (("gpus-per-task", 1), ("gpus-per-node", on_a_node), ("gpus", tasks), ("gres", on_a_node)):
        text = asked.text(name)
        if text is None:
            continue
        kinds = [part for part in text.split(",") if name != "gres" or part.split(":")[0] == "gpu"]
        for other in (part for part in text.split(",") if part not in kinds):
            asked.notes.append(f"{asked.path}:{asked.by_name[name].line}: --gres={other} has no effect here")
        if not kinds:
            continue
        parts = kinds[0].removeprefix("gpu:" if name == "gres" else "").split(":")
        parts = ["1"] if parts == ["gpu"] else parts
        if len(kinds) > 1 or len(parts) > 2 or not re.fullmatch(r"[0-9]{1,6}", parts[-1], re.ASCII):
            raise asked.wrong(name, "NUMBER or TYPE:NUMBER, of one type")
        count = int(parts[-1])
        if count % among:
            raise asked.wrong(name, f"a multiple of {among}, so that all tasks get equally many")
        return count // among, parts[0] if len(parts) == 2 else ""
    return 0, ""


def _memory(asked: _Asked, cpus: int, gpus: int, on_a_node: int) -> int:
    for name, times, among in (("mem-per-cpu", cpus, 1), ("mem-per-gpu", max(gpus, 1), 1), ("mem", 1, on_a_node)):
        text = asked.text(name)
        if text is None:
            continue
        found = _MEMORY.fullmatch(text)
        if found is None:
            raise asked.wrong(name, "megabytes, or like 16G")
        size = int(found[1]) * _UNITS[found[2].upper() or "M"] * times // among
        if not size:
            asked.notes.append(f"{asked.path}: --{name}=0: all memory of a node is `exclusive` here; it asks for none")
        return size
    return 0


def _time_limit(asked: _Asked) -> float | None:
    text = asked.text("time")
    if text is None or text.upper() in ("UNLIMITED", "INFINITE", "0", "-1"):
        return None
    found = _TIME.fullmatch(text)
    if found is None:
        raise asked.wrong("time", "minutes, or like 2:00:00 or 1-12:00:00")
    days, first, second, third = found.groups()
    numbers = [int(each or 0) for each in (first, second, third)]
    if days is not None:  # days-hours, days-hours:minutes, days-hours:minutes:seconds
        seconds = int(days) * 86400 + numbers[0] * 3600 + numbers[1] * 60 + numbers[2]
    elif third is not None:
        seconds = numbers[0] * 3600 + numbers[1] * 60 + numbers[2]
    else:  # minutes, minutes:seconds
        seconds = numbers[0] * 60 + numbers[1]
    return float(seconds) if seconds else None


def _dependencies(asked: _Asked) -> list[str] | None:
    text = asked.text("dependency")
    if text is None:
        return None
    found: list[str] = []
    for part in text.split(","):
        kind, *ids = part.split(":")
        if kind != "afterok" or not ids or not all(each.isdecimal() for each in ids) or "?" in text:
            raise asked.wrong("dependency", "afterok:ID:ID; a job here starts when all those have succeeded")
        found += ids
    return found


def _hosts(asked: _Asked) -> list[str] | None:
    text = asked.text("exclude")
    if text is None:
        return None
    found: list[str] = []
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\])?", text):
        span = _HOSTS.fullmatch(part)
        if span is None:
            found.append(part)
            continue
        for each in span[2].split(","):
            first, _, last = each.partition("-")
            if not first or int(last or first) - int(first) >= MOST_HOSTS:
                raise asked.wrong("exclude", f"names of at most {MOST_HOSTS} nodes")
            found += [f"{span[1]}{number:0{len(first)}}" for number in range(int(first), int(last or first) + 1)]
    if len(found) > MOST_HOSTS or any(set(name) & set("[]") for name in found):
        raise asked.wrong("exclude", f"names of at most {MOST_HOSTS} nodes")
    return found


def _checkpoint(asked: _Asked) -> Json | None:
    """A signal before the end is how batch scripts are told to save."""
    text = asked.text("signal")
    if text is None:
        return None
    found = re.fullmatch(r"(?:[BR]+:)?(?:SIG)?(TERM|INT|USR1|USR2|HUP|QUIT)(?:@(\d{1,5}))?", text, re.ASCII)
    if found is None:
        raise asked.wrong("signal", "one of TERM, INT, USR1, USR2, HUP and QUIT, as in USR1@120")
    line = asked.by_name["signal"].line
    asked.notes.append(
        f"{asked.path}:{line}: --signal={text}: it is taken to save its work at SIG{found[1]}, and may be preempted"
    )
    return {"signal": f"SIG{found[1]}", "grace": min(int(found[2] or 60), 3600)}


def _array(asked: _Asked) -> str | None:
    text = asked.text("array")
    if text is None:
        return None
    span = r"\d+(-\d+(:[1-9]\d*)?)?"
    if not re.fullmatch(rf"{span}(,{span})*(%[1-9]\d{{0,8}})?", text, re.ASCII):
        raise asked.wrong("array", "numbers and spans like 0-9, 1,3,5-7, 0-15:4 or, at most 4 at once, 0-9%4")
    return text


def _passed_on(export: str) -> str:
    words = [word for word in export.split(",") if "=" not in word]
    if "NONE" in words or not words:
        return "none"
    return "all" if "ALL" in words else ",".join(words)


def _environment(asked: _Asked, job: Json) -> None:
    pairs = [word.partition("=") for word in (asked.text("export") or "").split(",") if "=" in word]
    cpus = (job.get("resources") or {}).get("cpus")
    env = {name: value for name, _, value in pairs}
    if cpus:
        env |= {"SLURM_CPUS_PER_TASK": str(cpus), "SLURM_CPUS_ON_NODE": str(cpus)}
    nodes, tasks = _nodes_of(asked), job.get("workers", 1)
    env |= {"SLURM_NNODES": str(nodes), "SLURM_JOB_NUM_NODES": str(nodes)}
    env["SLURM_NTASKS_PER_NODE"] = str(math.ceil(tasks / nodes))
    if memory := (job.get("resources") or {}).get("memory"):
        env["SLURM_MEM_PER_NODE"] = str(memory >> 20)
    job["env"] = env


def _nodes_of(asked: _Asked) -> int:
    """The number of nodes that the script asks for, which is what it expects to find in its variables."""
    return int((asked.text("nodes") or "1").partition("-")[0])


def _interpreter(text: str) -> list[str]:
    """The words of the first line that name the interpreter; none if it names none."""
    first = text.partition("\n")[0]
    words = first.removeprefix("#!").split() if first.startswith("#!") else []
    if words and Path(words[0]).name == "env":
        words = words[2:] if words[1:2] == ["-S"] else words[1:]
    return words


def _command(path: Path, text: str, arguments: list[str], is_spread: bool, asked: _Asked) -> list[str]:
    """Return the command of each task: the script's interpreter with its text, as Slurm keeps a copy of a script."""
    words = _interpreter(text)
    if not words:
        raise RotaError(f"{path}: its first line names no program that runs it; begin it with #!/bin/sh or the like")
    if Path(words[0]).name in _SHELLS:
        if is_spread:
            asked.notes.append(
                f"{path}: the script runs in each task, and `srun` there runs its command; "
                "Slurm runs the script once, and `srun` in all tasks"
            )
        return [*words, "-c", f"{STAND_INS}{text}", path.name, *arguments]
    if is_spread:
        asked.notes.append(f"{path}: the script runs in each task; Slurm runs it once")
    return started(words, text, path.name, arguments)
