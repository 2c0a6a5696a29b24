"""Compiles the package's C sources while it is built. Without a C compiler the package works all the same."""

import os
import shlex
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = {  # → what stays in plain Python without it
    Path("planner/packing/fill.c"): "packing, 24 times slower or more",
    Path("planner/simulate/clock.c"): "the simulator's clock, about 40 times slower",
}
FLAGS = ["-O2", "-ffp-contract=off", "-shared", "-fPIC"]  # no fused multiply-add: plain Python must give the same bits


class NativeBuildHook(BuildHookInterface):
    """Called by hatchling, for wheels and for editable installations."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        built = [library for source in SOURCES if (library := self.compiled(source))]
        if built:
            build_data["artifacts"] += map(str, built)
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

    def compiled(self, source: Path) -> Path | None:
        """The library beside a source: `fill.c` gives `libfill.so`."""
        compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
        library, root = source.with_name(f"lib{source.stem}.so"), Path(self.root)
        try:
            subprocess.run([*compiler, *FLAGS, "-o", str(root / library), str(root / source), "-lm"], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            self.app.display_warning(f"in plain Python stays {SOURCES[source]}: {error}")
            return None
        return library
