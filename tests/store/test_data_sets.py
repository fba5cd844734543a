"""A data set that is not there is refused with the way to get it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.core.errors import RotaError
from rota.store.data.data_sets import DataSet, DataSets


def test_unknown_data_set_says_what_to_do(tmp_path: Path) -> None:
    (home := tmp_path / "home").mkdir()
    (folder := tmp_path / "images").mkdir()
    sets = DataSets(home)
    with pytest.raises(RotaError, match=r"no data set 'images'; an admin adds it with `rota data add`"):
        sets.find("images", "nlp")

    sets.put(DataSet(name="image", path=str(folder)))

    with pytest.raises(RotaError, match="no data set 'images'; did you mean 'image'"):
        sets.find("images", "nlp")
