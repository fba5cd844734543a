from __future__ import annotations

from collections.abc import Iterator

import pytest

from rota.estimate.forest import one_thread


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield
