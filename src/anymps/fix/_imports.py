"""The project's files that a script uses: itself, and what it and they import."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from anymps.fix._lines import tree_of
from anymps.fix._program import Program
from anymps.record import Site


def source_files(program: Program) -> list[Path]:
    """The script first, then the project's modules that are imported from there on."""
    found = [program.main.path.resolve()]
    seen = set(found)
    for path in found:
        tree = tree_of(program.text_of(str(path)))
        for file in (file for name in _imported(tree) for file in _files(program, path, name)):
            if file not in seen:
                seen.add(file)
                found.append(file)
    return found


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (node.module or "", *(f"{node.module or ''}.{name.name}".strip(".") for name in node.names))


def _files(program: Program, importer: Path, name: str) -> Iterator[Path]:
    inner = Path(*name.split(".")) if name else Path()
    for folder in (program.main.path.resolve().parent, importer.parent, program.root):
        for file in (folder / inner.with_suffix(".py"), folder / inner / "__init__.py") if name else ():
            if file.is_file() and program.owns(Site(str(file), 1, "", "")):
                yield file.resolve()
