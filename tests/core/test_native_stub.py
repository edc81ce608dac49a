"""The native core's face in Python: `_native.pyi` has every function of the module, and no other."""

from __future__ import annotations

import ast
from pathlib import Path

import anymps.device
from anymps.device import native
from anymps.metal import Device

STUB = Path(anymps.device.__file__).with_name("_native.pyi")


def test_the_stub_has_the_functions_of_the_module() -> None:
    """A function that is added in C++ gets its types there, or in what shaders need of a device."""
    (core,) = (node for node in ast.parse(STUB.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef))
    written = {node.name for node in core.body if isinstance(node, ast.FunctionDef)}
    written |= {name for name, value in vars(Device).items() if callable(value) and not name.startswith("_")}
    assert sorted(written) == sorted(name for name in dir(native()) if not name.startswith("__"))


def test_its_parameters_have_no_names() -> None:
    """The module takes them by position alone, apart from what stands for a function of torch."""
    (core,) = (node for node in ast.parse(STUB.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef))
    by_name = [
        node.name
        for node in core.body
        if isinstance(node, ast.FunctionDef)
        and (len(node.args.args) > bool(not node.args.posonlyargs) or node.args.kwarg)
    ]
    assert by_name == ["run_backward"]
