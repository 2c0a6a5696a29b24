"""Compiles planner/packing/fill.c while the package is built. Without a C compiler the package works all the same."""

import os
import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("planner/packing/fill.c")
LIBRARY = Path("planner/packing/libfill.so")
FLAGS = ["-O2", "-ffp-contract=off", "-shared", "-fPIC"]  # no fused multiply-add: plain.py must give the same bits


class NativeBuildHook(BuildHookInterface):
    """Called by hatchling, for wheels and for editable installations."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
        root = Path(self.root)
        try:
            subprocess.run([*compiler, *FLAGS, "-o", str(root / LIBRARY), str(root / SOURCE), "-lm"], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            self.app.display_warning(f"packing stays in plain Python, 24 times slower or more: {error}")
            return
        build_data["artifacts"].append(str(LIBRARY))
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
