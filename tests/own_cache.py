"""A cache directory of a test's own, with what takes long to build: the native core, and what all shaders share."""

from __future__ import annotations

from pathlib import Path

from anymps._cache import cache_home

BUILT = ("native", "metal/headers", "metal/runtime", "metal/shim")


def new_cache(folder: Path) -> Path:
    """Make the directory `folder` a cache that shares `BUILT` with that of this process, and holds nothing else."""
    (folder / "metal").mkdir(mode=0o755, parents=True)
    for part in BUILT:
        shared = cache_home() / part
        shared.mkdir(mode=0o755, parents=True, exist_ok=True)  # what is built later is kept there, too
        (folder / part).symlink_to(shared)
    return folder
