"""Objects chosen by coverage: atheris looks for bytes that lead readers of Kubernetes objects to new code.

The bytes take the place of chance in the random objects of `tools/fuzz.py`, and also give free text. Nothing may be
raised; atheris prints the exception and keeps the bytes in a file if something is.

usage: tools/fuzz_guided.py [--seconds N] [--corpus FOLDER] [FILE...]   (FILE: bytes to try again)
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

try:
    import atheris
except ImportError:
    raise SystemExit("atheris is not installed: pip install atheris") from None

with atheris.instrument_imports(include=["rota.drivers.kubernetes"]):
    from drivers.kubernetes.fuzz import StrangeCluster
    from drivers.kubernetes.strange_objects import SCALARS, STRANGE_KINDS, WORDS

KINDS = tuple(STRANGE_KINDS)
MOST_OBJECTS = 6
LONGEST_TEXT = 40
LONGEST_INPUT = 1000
FIRST_INPUTS = 50


class Guided(random.Random):
    """A source of chance that spends the bytes of a fuzzer, and draws some words from them letter by letter."""

    def __init__(self, bytes_left: Any) -> None:
        self._left = bytes_left
        super().__init__(0)

    def random(self) -> float:
        return float(self._left.ConsumeIntInRange(0, 255)) / 256

    def getrandbits(self, k: int, /) -> int:
        return int(self._left.ConsumeUInt((k + 7) // 8)) & ((1 << k) - 1)

    def choice(self, seq: Sequence[Any]) -> Any:  # type: ignore[override]
        if (seq is WORDS or seq is SCALARS) and self._left.ConsumeBool():
            return self._left.ConsumeUnicode(LONGEST_TEXT)
        return super().choice(seq)


def try_bytes(data: bytes) -> None:
    """Read a few objects made of the bytes."""
    left = atheris.FuzzedDataProvider(data)
    rng = Guided(left)
    cluster = StrangeCluster()
    for _ in range(left.ConsumeIntInRange(1, MOST_OBJECTS)):
        kind = KINDS[left.ConsumeIntInRange(0, len(KINDS) - 1)]
        cluster.see(kind, STRANGE_KINDS[kind](rng))
    cluster.look()


def seed_corpus(folder: Path) -> None:
    """Begin with inputs that are long enough for whole objects; what earlier runs found is kept."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(FIRST_INPUTS if not any(folder.iterdir()) else 0):
        (folder / f"first-{number}").write_bytes(random.Random(number).randbytes(LONGEST_INPUT))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--corpus", type=Path, default=Path("out/fuzz"))
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    if options.files:
        arguments = options.files
    else:
        seed_corpus(options.corpus)
        arguments = [f"-max_total_time={options.seconds}", f"-max_len={LONGEST_INPUT}", "-len_control=0", "-timeout=10"]
        arguments += ["-print_final_stats=1", f"-artifact_prefix={options.corpus}-", str(options.corpus)]
    atheris.Setup([sys.argv[0], *arguments], try_bytes)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
