"""Faces whose names are loaded when they are asked for; `anymps.record` is always the function."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

import pytest

import anymps
from anymps._lazy import lazy_face
from processes import run_python

SOURCE = Path(anymps.__file__).parent
FACES = sorted(path for path in SOURCE.rglob("__init__.py") if "lazy_face(" in path.read_text(encoding="utf-8"))
OPTIONAL = {"LightningCallback", "TransformersCallback"}  # each needs a library of its own


@pytest.mark.parametrize("path", FACES, ids=lambda path: path.parent.relative_to(SOURCE).as_posix())
def test_faces(path: Path) -> None:
    """What type checkers see is what is loaded, from the module that they see it in."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    seen = {
        alias.name: str(node.module) for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    face: Any = importlib.import_module(".".join(("anymps", *path.parent.relative_to(SOURCE).parts)))
    for name in seen.keys() - OPTIONAL:
        assert getattr(face, name) is getattr(importlib.import_module(seen[name]), name)


def test_a_name_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is the module's own; a name that is not there is told as Python does."""
    face: Any = importlib.import_module("anymps.record")  # `anymps.record` itself is the function
    load = lazy_face("anymps.record", walk="_walk")
    monkeypatch.delattr(face, "Site", raising=False)
    site = load("Site")
    assert vars(face)["Site"] is site
    assert load("walk").__module__ == "anymps.record._walk"
    monkeypatch.delattr(face, "walk")
    with pytest.raises(AttributeError) as error:
        load("Nothing")
    assert str(error.value) == "module 'anymps.record' has no attribute 'Nothing'"
    assert set(anymps.__all__) <= set(dir(anymps))


def test_importing_loads_nothing() -> None:
    """`import anymps` loads its errors, its version and the loader alone; a name loads what it needs."""
    result = run_python("""
        import sys, anymps
        print(sorted(name for name in sys.modules if name.split(".")[0] == "anymps"))
        print(anymps.parse_mac("M1 8GB").name, "anymps.mac" in sys.modules, "anymps.device" in sys.modules)
    """)
    assert result.lines == ["['anymps', 'anymps._errors', 'anymps._lazy', 'anymps._version']", "M1 8GB True False"]


def test_record_is_the_function() -> None:
    """Also after the package of the same name was imported, before or after the first use."""
    result = run_python("""
        from anymps.record import Recording
        import anymps
        print(callable(anymps.record), anymps.Recording is Recording)
        import anymps.record._rows
        print(anymps.record.__name__, anymps.record.__module__)
    """)
    assert result.lines == ["True True", "record anymps.capture._start"]
