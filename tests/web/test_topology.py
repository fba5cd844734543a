"""The colours on the map."""

from __future__ import annotations

from rota.web.topology import COLOURS, colours_for


def test_no_two_names_share_a_colour_and_those_that_hold_most_have_one() -> None:
    devices = {f"t{number:02d}": number for number in range(1, COLOURS + 4)}

    colours = colours_for(devices)

    assert len(set(colours.values())) == len(colours) == COLOURS
    assert set(colours) == set(sorted(devices)[-COLOURS:])
