from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from rota.core.errors import RotaError
from rota.files.quantities import parse_bits_per_second, parse_bytes, parse_cpus, parse_duration

MEMORY = "not an amount of memory: {}; write it like 40Gi, 512GB or a number of bytes"
CPUS = "not a number of CPUs: {}; write it like 64, 0.5 or 500m"
NETWORK = "not a bandwidth: {}; write it in bits like 10Gbps or 100Mbps"
TIME = "not a duration: {}; write it like 90, 10m, 1h30m or inf"


@pytest.mark.parametrize(
    ("parse", "written", "amount"),
    [
        (parse_bytes, "40Gi", 40 * 2**30),
        (parse_bytes, "40GiB", 40 * 2**30),
        (parse_bytes, "512GB", 512 * 10**9),
        (parse_bytes, "512gb", 512 * 10**9),
        (parse_bytes, "1.5Ti", 3 * 2**39),
        (parse_bytes, "2 Ki", 2048),
        (parse_bytes, "0.3Ki", 307),
        (parse_bytes, "17", 17),
        (parse_bytes, "17B", 17),
        (parse_bytes, 1024, 1024),
        (parse_bytes, 1e12, 10**12),
        (parse_cpus, 64, 64_000),
        (parse_cpus, 0.5, 500),
        (parse_cpus, "0.001", 1),
        (parse_cpus, "500m", 500),
        (parse_bits_per_second, "10Gbps", 10 * 10**9),
        (parse_bits_per_second, "2.5 Gbps", 2_500_000_000),
        (parse_bits_per_second, "100Mbps", 10**8),
        (parse_bits_per_second, "56kbps", 56_000),
        (parse_bits_per_second, 1000, 1000),
        (parse_duration, 90, 90.0),
        (parse_duration, 0.25, 0.25),
        (parse_duration, "90", 90.0),
        (parse_duration, "10m", 600.0),
        (parse_duration, "1h30m", 5400.0),
        (parse_duration, "1h 30m", 5400.0),
        (parse_duration, "2d1h", 176_400.0),
        (parse_duration, "1.5h", 5400.0),
        (parse_duration, "250ms", 0.25),
        (parse_duration, "1m250ms", 60.25),
        (parse_duration, "inf", math.inf),
        (parse_duration, math.inf, math.inf),
    ],
)
def test_amount_is_read(parse: Callable[[object], float], written: object, amount: float) -> None:
    assert parse(written) == amount


@pytest.mark.parametrize(
    ("parse", "written", "message"),
    [
        (parse_bytes, "40Qi", MEMORY.format("'40Qi'")),
        (parse_bytes, "-1", MEMORY.format("'-1'")),
        (parse_bytes, -1, MEMORY.format("-1")),
        (parse_bytes, "", MEMORY.format("''")),
        (parse_bytes, True, MEMORY.format("True")),
        (parse_bytes, None, MEMORY.format("None")),
        (parse_bytes, math.nan, MEMORY.format("nan")),
        (parse_bytes, [40], MEMORY.format("[40]")),
        (parse_cpus, "many", CPUS.format("'many'")),
        (parse_cpus, "0.0005", "not a number of CPUs: '0.0005'; the smallest part is 0.001"),
        (parse_bits_per_second, "10GBps", NETWORK.format("'10GBps'")),
        (parse_bits_per_second, "10G", NETWORK.format("'10G'")),
        (parse_duration, "30m1h", TIME.format("'30m1h'")),
        (parse_duration, "1h30", TIME.format("'1h30'")),
        (parse_duration, "-5s", TIME.format("'-5s'")),
        (parse_duration, "soon", TIME.format("'soon'")),
        (parse_duration, "", TIME.format("''")),
        (parse_duration, math.nan, TIME.format("nan")),
        (parse_duration, False, TIME.format("False")),
    ],
)
def test_nonsense_is_refused(parse: Callable[[object], float], written: object, message: str) -> None:
    with pytest.raises(RotaError) as refusal:
        parse(written)

    assert str(refusal.value) == message
