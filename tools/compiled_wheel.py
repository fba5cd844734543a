"""Puts compiled modules into a wheel where that is asked for (`ROTA_COMPILED=1 pip wheel .`).

Without it the wheel holds plain Python and runs anywhere. A project that lies elsewhere in the repository names the
folder of the package as `source` and that of the manual pages as `manual`; their files are put into the wheel as well.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMPILED = (".so", ".pyc")
COMPILERS = ["mypy>=1.10", "setuptools>=75", "types-PyYAML", "types-setuptools"]


class CompiledModules(BuildHookInterface[Any]):
    """Compiles the hot modules into a folder of its own, so that the source tree stays as it is."""

    PLUGIN_NAME = "custom"

    @property
    def is_asked(self) -> bool:
        """Whether the wheel is to hold compiled modules."""
        return os.environ.get("ROTA_COMPILED", "") == "1"

    def dependencies(self) -> list[str]:
        """What a build environment needs besides."""
        return COMPILERS if self.is_asked else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and add the modules to the wheel; an editable install never has them."""
        if source := self.config.get("source"):
            self._add_files(Path(self.root, source).resolve(), build_data)
        if not self.is_asked or version == "editable":
            return
        self.folder = tempfile.TemporaryDirectory(prefix="rota-wheel-")
        script = Path(self.root, self.config["path"]).resolve().with_name("compile.py")
        compiled = subprocess.run(
            [sys.executable, str(script), "--into", self.folder.name], capture_output=True, text=True, check=False
        )
        if compiled.returncode != 0:
            self.app.display_error(compiled.stdout + compiled.stderr)
            raise SystemExit("compiling failed; without ROTA_COMPILED=1 the wheel is plain Python")
        for module in sorted(Path(self.folder.name).rglob("*.so")):
            build_data["force_include"][str(module)] = str(module.relative_to(self.folder.name))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def _add_files(self, package: Path, build_data: dict[str, Any]) -> None:
        for page in sorted(Path(self.root, self.config["manual"]).resolve().iterdir()):
            build_data["shared_data"][str(page)] = f"share/man/man1/{page.name}"
        for path in sorted(package.rglob("*")):
            if path.is_file() and path.suffix not in COMPILED:
                build_data["force_include"][str(path)] = str(path.relative_to(package.parent))
