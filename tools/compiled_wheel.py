"""Puts compiled modules into a wheel where that is asked for (`ROTA_COMPILED=1 pip wheel .`).

Without it, and where compiling fails, the wheel holds plain Python and runs anywhere.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

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
        if not self.is_asked or version == "editable":
            return
        self.folder = tempfile.TemporaryDirectory(prefix="rota-wheel-")
        script = Path(self.root, "tools", "compile.py")
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
