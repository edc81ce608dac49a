"""Native cores that a wheel brings, one for each release of torch: with one of them no compiler is needed.

A core fits the CPU build and the CUDA builds of a release: they come from one commit, and of their headers only
caffe2/core/macros.h differs, by flags that the core does not read (torch 2.13.0, wheels for Linux).
"""

from __future__ import annotations

import sysconfig
from pathlib import Path

from anymps.device._toolchain import TorchInstall

CORES = Path(__file__).with_name("cores")


def core_name(torch: TorchInstall) -> str:
    """The file name of the core for this torch, Python and platform: `2.13.0-cf30153c4c13.cpython-311-….so`."""
    return f"{torch.public_version}-{torch.git_version[:12]}{sysconfig.get_config_var('EXT_SUFFIX')}"


def find_prebuilt(torch: TorchInstall) -> Path | None:
    """The core that came with this installation of anymps for this torch."""
    path = CORES / core_name(torch)
    return path if path.is_file() else None
