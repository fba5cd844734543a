"""Tokens for slurmrestd: what is read in them, whatever is given."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.drivers.slurm.commands import SlurmRefused
from rota.drivers.slurm.rest import SlurmRest, claims_of


def token_of(claims: Any) -> str:
    parts = ({"alg": "HS256"}, claims)
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*encoded, "signature"])


@given(st.dictionaries(st.text(max_size=8), st.none() | st.integers() | st.text(max_size=8)))
def test_claims_of_a_token_are_read(claims: dict[str, Any]) -> None:
    assert claims_of(token_of(claims)) == claims


@given(st.text(max_size=40) | st.binary(max_size=40).map(lambda value: f"a.{base64.b64encode(value).decode()}.b"))
def test_nonsense_is_no_token(text: str) -> None:
    assert isinstance(claims_of(text), dict)


def test_token_that_has_ended_is_not_shown(tmp_path: Path) -> None:
    place = tmp_path / "token"
    place.write_text(f"SLURM_JWT={token_of({'sun': 'ann', 'exp': int(time.time()) - 1})}\n")

    with pytest.raises(SlurmRefused, match="has ended"):
        asyncio.run(SlurmRest("http://127.0.0.1:1", place).jobs())
