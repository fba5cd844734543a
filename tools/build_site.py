"""Build the documentation of this version into a site that keeps those of others: `python tools/build_site.py [OUT]`.

    OUT/index.html     leads to the newest version
    OUT/versions.js    the versions, newest first; each page offers them in its header
    OUT/0.1.0/         the pages of a version; built again, they are replaced

Needs no network, and neither do the pages: the site can be read from files.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(.*)")


def build(out: Path, version: str) -> None:
    """Build the pages and put them into the site as a version."""
    from mkdocs.commands.build import build as build_pages
    from mkdocs.config import load_config

    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as folder:
        made = Path(folder, version)
        config = load_config(config_file=str(ROOT / "mkdocs.yml"), site_dir=str(made))
        config.plugins.on_startup(command="build", dirty=False)
        build_pages(config)  # warnings end it: the configuration is strict
        shutil.rmtree(out / version, ignore_errors=True)
        made.replace(out / version)
    list_versions(out)


def list_versions(out: Path) -> list[str]:
    """Write the list of the versions in a site, and the page that leads to the newest; return the list."""
    found = [path.parent.name for path in out.glob("*/index.html") if _VERSION.fullmatch(path.parent.name)]
    versions = sorted(found, key=_order, reverse=True)
    (out / "versions.js").write_text(f"window.ROTA_VERSIONS = {json.dumps(versions)};\n", encoding="utf-8")
    (out / "index.html").write_text(
        '<!doctype html>\n<html lang="en">\n<title>Rota</title>\n'
        f'<meta http-equiv="refresh" content="0; url={versions[0]}/index.html">\n'
        f'<p><a href="{versions[0]}/index.html">Rota {versions[0]}</a></p>\n</html>\n',
        encoding="utf-8",
    )
    return versions


def _order(version: str) -> tuple[int, int, int, bool, str]:
    """Numbers by their value; what has a suffix, such as 0.2.0.dev0, comes before the version itself."""
    found = _VERSION.fullmatch(version)
    assert found is not None
    return int(found[1]), int(found[2]), int(found[3]), not found[4], found[4]


if __name__ == "__main__":
    os.environ["NO_MKDOCS_2_WARNING"] = "1"
    from rota import __version__

    site = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "out" / "site"
    build(site, __version__)
    print(f"{site}/index.html")
