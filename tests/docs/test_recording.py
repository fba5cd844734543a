"""The animated recording of a terminal shows what its script says, and plays without scripts or other files."""

from __future__ import annotations

from xml.etree import ElementTree

from recording import COLUMNS, OUT, ROWS, SCENES, draw, timed

_SVG = "{http://www.w3.org/2000/svg}"


def _texts(svg: str) -> list[str]:
    texts = [(text.text or "").replace("\u00a0", " ") for text in ElementTree.fromstring(svg).iter(f"{_SVG}text")]
    return [text for text in texts if text]


def test_recording_shows_each_command_of_its_script() -> None:
    shown = _texts(OUT.read_text(encoding="utf-8"))

    assert [text[2:] for text in shown if text.startswith("$ ")] == [
        command for scene in SCENES for command in scene.commands
    ]
    assert not [text for text in shown if text.startswith(("error:", "Traceback"))]


def test_recording_loads_nothing() -> None:
    text = OUT.read_text(encoding="utf-8")

    assert "<script" not in text
    assert text.count("http") == 1  # the name space


def test_lines_appear_in_order_and_are_escaped() -> None:
    said = [[("rota ps <x>", ["a & b", "c" * 500]), ("rota why 1", ["because"])], [("rota nodes", ["n1"] * 50)]]

    screens = timed(["one", "two"], said)

    assert [line.at_s for screen in screens for line in screen.lines] == sorted(
        line.at_s for screen in screens for line in screen.lines
    )
    assert screens[0].end_s == screens[1].begin_s
    assert len(screens[1].lines) == ROWS
    assert _texts(draw(screens))[:4] == ["one", "$ rota ps <x>", "a & b", "c" * COLUMNS]
