"""Puts native cores into a wheel: those in the folder that ANYMPS_CORES names. The wheel is then for one platform."""

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CoresHook(BuildHookInterface):
    """Called by hatchling before it writes a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the files and where they go."""
        cores = sorted(Path(os.environ["ANYMPS_CORES"]).glob("*.so")) if "ANYMPS_CORES" in os.environ else []
        for core in cores:
            build_data["force_include"][str(core)] = f"anymps/device/cores/{core.name}"
        if cores:
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
