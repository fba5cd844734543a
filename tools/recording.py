"""Record a terminal session as an animated SVG: `.venv/bin/python tools/recording.py`, into docs/images/terminal.svg.

The commands really run, against a manager of their own on emulated devices, and what they print is what is shown. The
picture is one file without scripts: it plays where images do (a README, the site, from files), follows the reader's
light or dark scheme, and stands still where less motion is wanted.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs" / "images" / "terminal.svg"
COLUMNS, ROWS = 118, 19
WIDE, HIGH = 7.25, 17.0
LEFT, TOP = 16.0, 48.0
TYPED_S, PAUSE_S, READ_S = 0.035, 0.5, 3.2
"""Seconds for each letter, after a command, and to read a scene."""
READY_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Commands that are shown on one screen."""

    title: str
    commands: tuple[str, ...]


SCENES = (
    Scene(
        title="compare policies on a trace",
        commands=(
            "rota trace generate mixed jobs.csv --jobs 500 --seed 7 --gpus 32 --load 1.1",
            "rota sim --trace jobs.csv --cluster gpu=32/8 --restart-cost 30 --policy fifo --policy srtf --policy las",
        ),
    ),
    Scene(
        title="submit jobs, and ask why one waits",
        commands=(
            "rota submit --gpus 8 --name bert -- sleep 300",
            "rota submit --gpus 4 --name resnet -- sleep 60",
            "rota ps",
            "rota why 2",
        ),
    ),
    Scene(title="look around", commands=("rota nodes", "rota policies las | head -12")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line on the screen: what it says, when it appears, and whether it is typed."""

    text: str
    at_s: float
    is_typed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """What one scene shows, from when to when."""

    title: str
    lines: tuple[Line, ...]
    begin_s: float
    end_s: float


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="rota-recording-") as folder, EmulatedManager(Path(folder)) as env:
        said = [[(command, _run(command, Path(folder), env)) for command in scene.commands] for scene in SCENES]
    screens = timed([scene.title for scene in SCENES], said)
    OUT.write_text(draw(screens), encoding="utf-8")
    print(OUT)
    return 0


class EmulatedManager:
    """A manager on emulated devices, with everything of its own in a folder."""

    def __init__(self, folder: Path) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        names = {"HOME": "home", "XDG_DATA_HOME": "data", "XDG_STATE_HOME": "state", "XDG_CONFIG_HOME": "config"}
        self.env = {**os.environ, "PATH": path, "NO_COLOR": "1", "COLUMNS": str(COLUMNS)}
        self.env |= {name: str(folder / each) for name, each in names.items()}
        self.log = folder / "manager.log"

    def __enter__(self) -> dict[str, str]:
        with self.log.open("wb") as log:
            command = ["rota", "up", "--emulate", "a100=8/8", "--port", "0"]
            self.process = subprocess.Popen(command, env=self.env, stdout=log, stderr=log)
        until = time.monotonic() + READY_S
        while subprocess.run(["rota", "ps"], env=self.env, capture_output=True, check=False).returncode:
            if time.monotonic() > until:
                raise SystemExit(f"the manager is not ready:\n{self.log.read_text(encoding='utf-8')}")
            time.sleep(0.2)
        return self.env

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(timeout=30)


def _run(command: str, folder: Path, env: dict[str, str]) -> list[str]:
    done = subprocess.run(
        ["bash", "-c", f"{command} 2>&1"], cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=True
    )
    return [line.rstrip() for line in done.stdout.splitlines()]


def timed(titles: Sequence[str], said: Sequence[Sequence[tuple[str, list[str]]]]) -> list[Screen]:
    """Say when each line appears, one scene after the other."""
    screens = []
    now_s = 0.0
    for title, commands in zip(titles, said, strict=True):
        begin_s = now_s
        lines: list[Line] = []
        for command, output in commands:
            lines.append(Line(text=f"$ {command}", at_s=now_s, is_typed=True))
            now_s += len(command) * TYPED_S + PAUSE_S
            lines.extend(Line(text=text, at_s=now_s, is_typed=False) for text in output)
            now_s += PAUSE_S
        now_s += READ_S
        screens.append(Screen(title=title, lines=tuple(lines[:ROWS]), begin_s=begin_s, end_s=now_s))
    return screens


def draw(screens: Sequence[Screen]) -> str:
    """Draw the screens as one animated picture."""
    whole_s = screens[-1].end_s
    width, height = 2 * LEFT + COLUMNS * WIDE, TOP + ROWS * HIGH + 12
    told = "; ".join(line.text for screen in screens for line in screen.lines if line.is_typed)
    styles, body = [], []
    for number, screen in enumerate(screens):
        styles.append(_shown(f"s{number}", screen.begin_s, screen.end_s, whole_s))
        body.append(f'<g class="s s{number}"><text class="t" x="{width / 2:.0f}" y="22">{escape(screen.title)}</text>')
        for row, line in enumerate(screen.lines):
            name = f"l{number}-{row}"
            styles.extend(_appearing(name, line, whole_s))
            kind = "c" if line.is_typed else "o"
            text = escape(line.text[:COLUMNS].replace(" ", "\u00a0"))
            body.append(f'<text class="{kind} {name}" x="{LEFT:.0f}" y="{TOP + (row + 0.7) * HIGH:.1f}">{text}</text>')
        body.append("</g>")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-label="A terminal: {escape(told, quote=True)}">\n<style>{_STYLE}{"".join(styles)}</style>\n'
        f'<rect class="w" x="1" y="1" width="{width - 2:.0f}" height="{height - 2:.0f}" rx="8"/>\n'
        '<circle cx="20" cy="18" r="5" fill="#d55e00"/><circle cx="38" cy="18" r="5" fill="#e6a700"/>'
        '<circle cx="56" cy="18" r="5" fill="#009e73"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


_STYLE = """
.w{fill:#f7f9fb;stroke:#c8d2da}.o{fill:#24303a}.c{fill:#0b4f79;font-weight:bold}.t{fill:#5b6770;text-anchor:middle}
text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
@media (prefers-color-scheme:dark){.w{fill:#12181e;stroke:#2c3943}.o{fill:#d6dee5}.c{fill:#7cc4ee}.t{fill:#93a1ac}}
@media (prefers-reduced-motion:reduce){text,g{animation:none!important}.s{visibility:hidden}.s0{visibility:visible}}
"""


def _shown(name: str, begin_s: float, end_s: float, whole_s: float) -> str:
    begin, end = 100 * begin_s / whole_s, 100 * end_s / whole_s
    before = "" if begin == 0 else f"0%,{begin - 0.001:.3f}%{{visibility:hidden}}"
    after = "" if end >= 100 else f"{end + 0.001:.3f}%,100%{{visibility:hidden}}"
    return (
        f"@keyframes {name}{{{before}{begin:.3f}%,{end:.3f}%{{visibility:visible}}{after}}}"
        f".{name}{{animation:{name} {whole_s:.1f}s infinite step-end}}\n"
    )


def _appearing(name: str, line: Line, whole_s: float) -> Iterator[str]:
    """A line is cut off at its left until it appears; a typed one is uncovered letter by letter."""
    begin = 100 * line.at_s / whole_s
    letters = len(line.text[:COLUMNS])
    typed_s = letters * TYPED_S if line.is_typed else 0.001
    end = min(100 * (line.at_s + typed_s) / whole_s, 100)
    hidden, full = "clip-path:inset(0 100% 0 0)", "clip-path:inset(0 0 0 0)"
    pace = f"steps({letters})" if line.is_typed else "step-end"
    yield (
        f"@keyframes {name}{{0%,{begin:.3f}%{{{hidden};animation-timing-function:{pace}}}{end:.3f}%,100%{{{full}}}}}"
        f".{name}{{animation:{name} {whole_s:.1f}s infinite}}\n"
    )


if __name__ == "__main__":
    raise SystemExit(main())
