"""Faces whose names are loaded when they are asked for: each name is there, and the two lists of them agree."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

import pytest

import anymps
from anymps._lazy import lazy_face

SOURCE = Path(anymps.__file__).parent
FACES = sorted(path for path in SOURCE.rglob("__init__.py") if "lazy_face(" in path.read_text(encoding="utf-8"))
HOOKS = {"load_ipython_extension"}  # other programs look for them; nobody imports them
OPTIONAL = {"LightningCallback", "TransformersCallback"}  # each needs a library of its own


def homes(tree: ast.Module) -> dict[str, str]:
    """The table of a face: the module of each name."""
    (call,) = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "lazy_face")
    table: dict[str, str] = ast.literal_eval(call.args[1])
    return {name: module for module, names in table.items() for name in names.split()}


@pytest.mark.parametrize("path", FACES, ids=lambda path: path.parent.relative_to(SOURCE).as_posix())
def test_faces(path: Path) -> None:
    """What type checkers see is what is loaded, from the module that they see it in."""
    package = ".".join(("anymps", *path.parent.relative_to(SOURCE).parts))
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    seen = {
        alias.name: str(node.module).removeprefix(f"{package}.")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {name: module for name, module in homes(tree).items() if name not in HOOKS} == seen
    face: Any = importlib.import_module(package)
    for name in set(seen) - OPTIONAL:
        assert getattr(face, name) is not None


def test_a_name_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is the module's own; a name that is not there is told as Python does."""
    face: Any = importlib.import_module("anymps.record")  # `anymps.record` itself is the function
    load = lazy_face("anymps.record", {"_facts": "Site Step"})
    monkeypatch.delattr(face, "Site", raising=False)
    site = load("Site")
    assert vars(face)["Site"] is site
    with pytest.raises(AttributeError) as error:
        load("Nothing")
    assert str(error.value) == "module 'anymps.record' has no attribute 'Nothing'"
