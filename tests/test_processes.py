"""Programs of the tests: a fork of a Python with torch behaves as a fresh Python; `make quick` chooses what to run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import changed
from processes import run_python, run_with_torch

FACTS = """
import os, sys
import torch
print(__name__, sys.argv, sys.path[0] == "", os.environ.get("NEW"), os.getcwd(), "__file__" in globals())
print(sys.modules["__main__"].FACT, "anymps" in sys.modules, torch.backends.mps.is_available())
print("PYTORCH_MPS_HIGH_WATERMARK_RATIO" in os.environ)
print("to the other stream", file=sys.stderr)
"""


@pytest.mark.parametrize(
    "code",
    [
        f"FACT = 1\n{FACTS}",
        "import sys; sys.exit(3)",
        "import sys; sys.exit('why')",
        "import os; os.kill(os.getpid(), 9)",
        "import atexit, sys; atexit.register(print, 'late', file=sys.stderr)",
        "def f():\n    raise ValueError('x')\nf()",
    ],
)
def test_a_fork_behaves_as_a_fresh_python(code: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In what it is told, prints and ends with; a test's own setting is not the program's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTORCH_MPS_HIGH_WATERMARK_RATIO", "1.0")
    assert run_with_torch(code, {"NEW": "x"}) == run_python(code, {"NEW": "x"})


def test_one_program_leaves_nothing_to_the_next() -> None:
    """Each is a fork of the same process; one that hangs is killed."""
    assert run_with_torch("import torch; torch.left = 1; import os; os.environ['LEFT'] = '1'").status == 0
    assert run_with_torch("import os, torch; print(hasattr(torch, 'left'), 'LEFT' in os.environ)").lines == [
        "False False"
    ]
    with pytest.raises(subprocess.TimeoutExpired):
        run_with_torch("import time; time.sleep(600)", timeout=0.1)
    assert run_with_torch("print(1)").lines == ["1"]


def test_what_imports_a_module_is_chosen() -> None:
    """By the module's name, or by a name that the package's face takes from it."""

    def names(*files: str) -> list[str]:
        return [path.name for path in changed.chosen({changed.ROOT / file for file in files})]

    ratio = names("src/anymps/cost/_for_mac.py")
    assert "test_cost_ratio.py" in ratio  # from anymps.cost import speed_ratio
    assert "test_mac.py" not in ratio
    (mac,) = (path for path in changed.TESTS.rglob("test_mac.py"))
    assert names(str(mac.relative_to(changed.ROOT)))[0] == "test_mac.py"
    core = names("src/anymps/device/native/bindings/module.cpp")
    assert {"test_native_units.py"} <= {*core} <= {*changed.OF_THE_CORE}
    plans = names("tests/plans.py")
    assert plans and "test_mac.py" not in plans
