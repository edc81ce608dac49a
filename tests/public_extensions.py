"""Builds other people's compiled extensions from checkouts of their repositories; nothing of theirs is kept here."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path
from typing import Any

from anymps.device._objective_c import objective_c


def copied(root: Path, into: Path, *folders: str) -> Path:
    """A copy of these folders of a checkout, without what may have been built in it."""
    for folder in folders:
        shutil.copytree(root / folder, into / folder, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return into


def extensions_of(setup: Path, *makers: str) -> tuple[list[Any], list[str]]:
    """What these functions of a setup.py make, without the sources that are Objective-C++; and the names of those."""
    theirs, foreign = runpy.run_path(str(setup)), []
    made = [theirs[maker]() for maker in makers]
    for extension in made:
        foreign += [source for source in extension.sources if objective_c(Path(source))]
        extension.sources = [source for source in extension.sources if source not in foreign]
    return made, sorted(Path(source).name for source in foreign)


def build(extensions: list[Any], root: Path) -> None:
    """Compiles them as setuptools does, and puts them into the package below this folder."""
    from setuptools.dist import Distribution
    from torch.utils.cpp_extension import BuildExtension

    command = BuildExtension(Distribution({"ext_modules": extensions}), use_ninja=False, no_python_abi_suffix=True)
    command.build_lib, command.build_temp = str(root), str(root / "objects")
    command.ensure_finalized()
    command.run()
