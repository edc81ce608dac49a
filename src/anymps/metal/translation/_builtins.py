"""The functions beneath Metal's headers that exist here, because programs that add to `metal` call them."""

from __future__ import annotations

import re

from anymps.metal._shim import SHIM

BUILTINS = frozenset(re.findall(r"\b__metal_\w+", (SHIM / "msl" / "builtins.h").read_text(encoding="utf-8")))
"""Their names, as the header has them."""
