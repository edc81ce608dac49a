"""Where Metal's headers and the C++ runtime are, and the macros that Metal's compiler defines."""

from __future__ import annotations

from pathlib import Path

SHIM = Path(__file__).with_name("shim")
RUNTIME = Path(__file__).with_name("runtime")
CHECKING = Path(__file__).with_name("checking")
METAL_MACROS = (
    "-D__METAL__=1",
    "-D__METAL_MACOS__=1",
    "-D__METAL_VERSION__=310",
    "-D__HAVE_BFLOAT__=1",
    "-D__HAVE_SIMDGROUP_MATRIX__=1",
)
