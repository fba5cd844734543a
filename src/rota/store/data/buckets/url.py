"""URLs of data sets, and what each kind of them needs."""

from __future__ import annotations

import importlib.util
import re
from urllib.parse import urlsplit

from rota.core.errors import RotaError

EXTRAS = {
    "s3": ("s3", "s3fs"),
    "s3a": ("s3", "s3fs"),
    "gs": ("gcs", "gcsfs"),
    "gcs": ("gcs", "gcsfs"),
    "abfs": ("azure", "adlfs"),
    "abfss": ("azure", "adlfs"),
    "az": ("azure", "adlfs"),
    "http": ("http", "aiohttp"),
    "https": ("http", "aiohttp"),
    "file": ("buckets", "fsspec"),
    "memory": ("buckets", "fsspec"),
}
"""By the scheme of a URL: the extra of Rota that reads it, and the module that this brings."""
_URL = re.compile(r"([a-z][a-z0-9+.-]{0,30})://.+", re.DOTALL)
MOST_URL = 2000


def is_url(path: str) -> bool:
    """Whether the place of a data set is a URL, and no folder."""
    return "://" in path


def check_url(name: str, url: str) -> None:
    """Raise a `RotaError` for a URL that is none of a bucket, or that can't be read here."""
    found = _URL.fullmatch(url)
    if found is None or len(url) > MOST_URL or "::" in url or any(ord(each) < 33 for each in url):
        raise RotaError(f"data set {name}: {url[:80]!r} is no URL of a bucket, such as s3://bucket/folder")
    scheme = found[1]
    if scheme not in EXTRAS:
        raise RotaError(f"data set {name}: {scheme}:// is not known; use one of {', '.join(sorted(EXTRAS))}")
    if "@" in urlsplit(url).netloc:
        raise RotaError(f"data set {name}: give credentials as secrets of the data set, not in its URL")
    if scheme == "memory":
        raise RotaError(f"data set {name}: memory:// is of one process only, and jobs are others")
    missing = missing_part(scheme)
    if missing is not None:
        raise RotaError(f"data set {name}: {missing}")


def missing_part(scheme: str) -> str | None:
    """Return what has to be installed to read URLs of a scheme; None if nothing is missing."""
    extra, module = EXTRAS[scheme]
    for each in ("fsspec", module):
        if importlib.util.find_spec(each) is None:
            return f"{scheme}:// needs {each}, which is not installed; pip install 'rota[{extra}]'"
    return None
