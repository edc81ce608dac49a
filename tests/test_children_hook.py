"""The hook by which a new process finds out that a recorded script has started it: it costs nothing when it is off."""

from __future__ import annotations

import sys
from pathlib import Path

from processes import SOURCE_ROOT, run_python

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HOOK = "anymps_children.pth"
# Python reads `.pth` files by this function when it starts.
START = f"import site, sys\nsite.addpackage({str(SOURCE_ROOT)!r}, {HOOK!r}, None)\n"


def test_off_it_imports_nothing() -> None:
    """Without the variable nothing but `os`, which Python has at its start anyway, is imported."""
    code = "import site, sys\nbefore = set(sys.modules)\n" + START + "print(sorted(set(sys.modules) - before))\n"
    assert run_python(code).lines == ["[]"]


def test_on_it_waits_for_torch(tmp_path: Path) -> None:
    """With the variable a process that does not import torch loads neither torch nor the device."""
    code = START + "import json\nprint('anymps.children' in sys.modules, 'torch' in sys.modules, sys.meta_path[0])\n"
    (line,) = run_python(code, env={"ANYMPS_CHILDREN": str(tmp_path)}).lines
    assert line.startswith("True False <anymps.children._begin._TorchFinder object")


def test_after_the_run_a_process_is_left_alone(tmp_path: Path) -> None:
    """Where the folder for parts is gone, torch is imported as it is, through its own loader."""
    code = (
        START
        + "import torch\nprint(torch.backends.mps.is_available(), sys.meta_path[0], torch.__loader__.exec_module)\n"
    )
    (line,) = run_python(code, env={"ANYMPS_CHILDREN": str(tmp_path / "gone")}).lines
    assert line.startswith("False <")
    assert "anymps" not in line


def test_asking_for_torch_is_not_importing_it(tmp_path: Path) -> None:
    """A library that only looks whether torch is installed leaves the hook in wait."""
    code = (
        START
        + "import importlib.util\nimportlib.util.find_spec('torch')\nprint('torch' in sys.modules, sys.meta_path[0])\n"
    )
    (line,) = run_python(code, env={"ANYMPS_CHILDREN": str(tmp_path)}).lines
    assert line.startswith("False <anymps.children._begin._TorchFinder object")


def test_the_wheel_puts_it_where_python_looks() -> None:
    """Beside the package, by that name: there Python reads `.pth` files."""
    project = tomllib.loads((SOURCE_ROOT.parent / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"] == {f"src/{HOOK}": HOOK}
    assert (SOURCE_ROOT / HOOK).read_text(encoding="utf-8").count("\n") == 1
