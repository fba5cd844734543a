"""The folders in which tasks run: what the manager writes there for supervisors, and reads from them.

`runs/JOB/ATTEMPT/RANK/` belongs to one task of one attempt; see `drivers/local/task_runner` for the files in it.
"""

from __future__ import annotations

import contextlib
import glob
import json
import math
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rota.core.errors import RotaError
from rota.core.model.job import JobId

Json = dict[str, Any]
_OUTPUT = "output-"
_MOST_PROGRESS = 16384
_MOST_CURVE = 1 << 20
_MOST_POINTS = 1000
_MOST_REPORTS = 4 << 20
_MOST_STEPS = 1 << 53
_NOT_WHAT_IT_SHOULD_BE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError)


def folder_bytes(folder: Path) -> int:
    """Return the space that the files in a folder take; links are not followed, what can't be read does not count."""
    total, pending = 0, [str(folder)]
    while pending:
        with contextlib.suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
    return total


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, however deep; links are not followed, what can't be removed stays."""
    with contextlib.suppress(RecursionError):  # a task nested folders a thousand deep
        shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder):
        with contextlib.suppress(OSError):
            subprocess.run(["rm", "-rf", "--", str(folder)], capture_output=True, stdin=subprocess.DEVNULL, check=False)


def mark_of(home: Path) -> str:
    """Return what tells the tasks of this folder from all others on the machine: made once and kept."""
    path = home / "mark.json"
    try:
        known = read_json(path)
        if known is None:
            known = {"mark": secrets.token_hex(8)}
            write_json(path, known)
        return str(known["mark"])
    except (ValueError, KeyError, TypeError) as error:
        raise RotaError(f"{path} is damaged; delete it if no task of this manager runs any more") from error


def attempt_folder(home: Path, job_id: JobId, attempt: int) -> Path:
    """Where one attempt of a job runs."""
    return home / "runs" / job_id / str(attempt)


def matching(folder: Path, pattern: str) -> list[Path]:
    """Return the paths below a folder that match a pattern, in order; what is removed meanwhile is left out.

    `Path.glob` raises an error where a folder goes while it is looked through.
    """
    return [folder / name for name in sorted(glob.glob(pattern, root_dir=folder))]


def task_files(home: Path, job_id: JobId, pattern: str) -> list[Path]:
    """Return the files of a job's tasks over all attempts; not what tasks themselves wrote to folders of their own."""
    return matching(home / "runs" / job_id, f"[0-9]*/*/{pattern}")


def stop_causes(home: Path, job_id: JobId, attempt: int) -> set[str]:
    """Return why the tasks of an attempt were ordered to stop."""
    orders = matching(attempt_folder(home, job_id, attempt), "*/stop.json")
    return {str(order.get("cause", "")) for path in orders if (order := read_json(path)) is not None}


def tasks_ended_s(home: Path, job_id: JobId, attempt: int) -> float | None:
    """Return when the last task of an attempt ended, by the manager's clock; None if one may still run."""
    folder = attempt_folder(home, job_id, attempt)
    try:
        states = [read_json(path / "state.json") or {} for path in matching(folder, "[0-9]*")]
        return max((float(state["ended_s"]) for state in states), default=None)
    except _NOT_WHAT_IT_SHOULD_BE:
        return None


def over_scratch(attempt: Path) -> Path:
    """The file in the folder of an attempt by which the manager ends it as one that has written too much."""
    return attempt / "over-scratch"


def shared_folder(home: Path, job_id: JobId) -> Path:
    """The folder that is a job's own, over all of its attempts; its tasks may write there."""
    return home / "runs" / job_id / "shared"


def progress(home: Path, job_id: JobId) -> Json | None:
    """What a job's first task last reported of its progress. The file is the task's: only numbers are taken from it."""
    try:
        read = json.loads(_read_shared(home, job_id, "progress-0.json", _MOST_PROGRESS))
        speed = float(read["steps_per_s"])
        shown = speed if math.isfinite(speed) else 0.0
        found: Json = {"step": _count(read["step"]), "steps_per_s": shown, "values": _numbers(read["values"])}
        if (steps := _count(read.get("steps") or 0)) > 0:
            found["steps"] = steps
        return found
    except _NOT_WHAT_IT_SHOULD_BE:
        return None


def step_done(home: Path, job_id: JobId, rank: int = 0) -> tuple[float, float] | None:
    """When a job's task last reported a step, by its own clock, and which; None if it reports none."""
    try:
        read = json.loads(_read_shared(home, job_id, f"progress-{rank}.json", _MOST_PROGRESS))
        at_s, step = float(read["at_s"]), float(read["step"])
    except _NOT_WHAT_IT_SHOULD_BE:
        return None
    return (at_s, step) if math.isfinite(at_s) and math.isfinite(step) else None


def curve(home: Path, job_id: JobId) -> list[tuple[float, int, dict[str, float]]]:
    """How the numbers of a job's first task went over its life, as (time, step, values); only numbers are taken."""
    try:
        read = json.loads(_read_shared(home, job_id, "curve-0.json", _MOST_CURVE))
        points = [(float(at_s), _count(step), _numbers(values)) for at_s, step, values in read["points"][:_MOST_POINTS]]
    except _NOT_WHAT_IT_SHOULD_BE:
        return []
    return [point for point in points if math.isfinite(point[0])]


def reports(home: Path, job_id: JobId, metric: str) -> list[tuple[int, float]]:
    """What a trial's first task reported of a metric, by step; of a step that was done again, the first report."""
    try:
        text = _read_shared(home, job_id, "reports.jsonl", _MOST_REPORTS).decode("utf-8", errors="replace")
    except OSError:
        return []
    found: dict[int, float] = {}
    for line in text.splitlines():
        try:
            read = json.loads(line)
            value, step = float(read["values"][metric]), _count(read["step"])
        except _NOT_WHAT_IT_SHOULD_BE:
            continue
        found.setdefault(step, value if math.isfinite(value) else math.inf)
    return sorted(found.items())


def reports_changed(home: Path, job_id: JobId) -> tuple[int, int] | None:
    """What changes with every report of a trial; None before the first."""
    try:
        found = os.stat(shared_folder(home, job_id) / "reports.jsonl", follow_symlinks=False)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _read_shared(home: Path, job_id: JobId, name: str, most_bytes: int) -> bytes:
    """A file of a job's own folder, which the job may have replaced by anything."""
    file = os.open(shared_folder(home, job_id) / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return os.read(file, most_bytes)
    finally:
        os.close(file)


def write_shared(home: Path, job_id: JobId, name: str, text: str) -> None:
    """Write a file to a job's own folder for its tasks to read; they may have put anything in its place."""
    folder = os.open(shared_folder(home, job_id), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    fresh = f".{name}.{secrets.token_hex(4)}"
    try:
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=folder)
        try:
            os.write(file, text.encode())
        finally:
            os.close(file)
        os.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(folder)


def _count(value: Any) -> int:
    """A number of steps; raises a `ValueError` for one that is too large to be compared or divided."""
    found = int(value)
    if abs(found) > _MOST_STEPS:
        raise ValueError("too many steps")
    return found


def _numbers(values: Json) -> dict[str, float]:
    """Values that can be drawn and sent: a loss that is no number any more is left out."""
    pairs = [(str(name)[:64], float(value)) for name, value in list(values.items())[:32]]
    return {name: value for name, value in pairs if math.isfinite(value)}


def usage(home: Path, job_id: JobId, attempt: int) -> Json | None:
    """What an attempt's tasks used, as far as they have ended: CPU time together, memory and GPUs of the largest."""
    try:
        ranks = [path for path in attempt_folder(home, job_id, attempt).iterdir() if path.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return None
    ended = [record for path in ranks if (record := read_json(path / "exit.json")) is not None]
    if not ended:
        return None
    return {
        "cpu_s": sum(float(record["cpu_s"]) for record in ended),
        "memory_bytes": max(int(record["memory_bytes"]) for record in ended),
        **gpu_usage(home, job_id, attempt),
    }


def gpu_usage(home: Path, job_id: JobId, attempt: int) -> Json:
    """What the tasks of an attempt used of GPUs, in the end or so far: of each amount the largest, if any was seen."""
    paths = matching(attempt_folder(home, job_id, attempt), "*/gpus.json")
    records = [known for path in paths if (known := read_json(path)) is not None]
    names = dict.fromkeys(name for known in records for name in known)
    return {name: max(float(known[name]) for known in records if name in known) for name in names}


def gpu_labels(record: Json, begun_s: float, ended_s: float) -> dict[str, float]:
    """What was seen of GPUs by the names under which it can be estimated, in GPUs, MiB, percent and seconds."""
    found = {"gpus": float(record["gpus"]), "gpu_memory_mb": record["gpu_memory_bytes"] / 2**20}
    if "gpu_busy_mean" not in record:
        return found
    from_s, until_s = float(record["busy_from_s"]), float(record["busy_until_s"])
    phases = {"load_s": from_s - begun_s, "train_s": until_s - from_s, "save_s": ended_s - until_s}
    busy = {"gpu_util_mean": float(record["gpu_busy_mean"]), "gpu_util_std": float(record["gpu_busy_std"])}
    return found | busy | {name: max(value, 0.0) for name, value in phases.items()}


def read_json(path: Path) -> Json | None:
    """A file's values; None if there is no such file."""
    try:
        value: Json = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    return value


def write_json(path: Path, value: Json) -> None:
    """Write a file whole, readable by its owner only."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with open(draft, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        json.dump(value, file)
    os.replace(draft, path)


def output_parts(folder: Path) -> list[tuple[int, Path]]:
    """The files of a task's output that are still there, each with where it begins."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.startswith(_OUTPUT))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [(int(name[len(_OUTPUT) : -4]), folder / name) for name in names]


def read_output(folder: Path, offset: int, most_bytes: int) -> tuple[int, bytes]:
    """Up to so many bytes of a task's output from an offset on, and where they begin: later if those are gone."""
    for begins, path in _from(output_parts(folder), offset):
        at = max(offset, begins)
        try:
            with path.open("rb") as file:
                file.seek(at - begins)
                output = file.read(most_bytes)
        except FileNotFoundError:
            continue
        if output:
            return at, output
    return offset, b""


def output_end(folder: Path) -> int:
    """Return the length of a task's output so far."""
    for begins, path in reversed(output_parts(folder)):
        try:
            return begins + path.stat().st_size
        except FileNotFoundError:
            continue
    return 0


def tail(folder: Path, most_bytes: int = 4096) -> str:
    """The end of a task's output."""
    _, output = read_output(folder, max(output_end(folder) - most_bytes, 0), most_bytes)
    return output.decode("utf-8", errors="replace")


def _from(parts: list[tuple[int, Path]], offset: int) -> Iterator[tuple[int, Path]]:
    """The parts from the one on that holds an offset."""
    last = 0
    for index, (begins, _) in enumerate(parts):
        if begins <= offset:
            last = index
    yield from parts[last:]
