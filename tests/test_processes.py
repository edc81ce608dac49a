"""Programs of the tests: a fork of a Python with torch behaves as a fresh Python; `make quick` chooses what to run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import changed
from processes import Result, run_python, run_with_torch

FACTS = """
import os, sys
import torch
print(__name__, sys.argv, sys.path[0] == "", os.environ.get("NEW"), os.getcwd(), "__file__" in globals())
print(sys.modules["__main__"].FACT, "anymps" in sys.modules, torch.backends.mps.is_available())
print("to the other stream", file=sys.stderr)
"""


def both(code: str, env: dict[str, str] | None = None) -> Result:
    """What a program does in a fresh Python, which the fork does, too."""
    fresh = run_python(code, env)
    assert run_with_torch(code, env) == fresh
    return fresh


def test_a_program_is_told_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Name, arguments, folder, environment, streams, and modules but torch."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTORCH_MPS_HIGH_WATERMARK_RATIO", "1.0")  # a test's own setting is not the program's
    told = both("FACT = 1\n" + FACTS + "print('PYTORCH_MPS_HIGH_WATERMARK_RATIO' in os.environ)\n", {"NEW": "x"})
    assert told.lines == [f"__main__ ['-c'] True x {os.path.realpath(tmp_path)} False", "1 False False", "False"]
    assert told.err == "to the other stream\n"


@pytest.mark.parametrize(
    ("code", "status", "err"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit('why')", 1, "why\n"),
        ("import os; os.kill(os.getpid(), 9)", -9, ""),
        ("import atexit, sys; atexit.register(print, 'late', file=sys.stderr)", 0, "late\n"),
    ],
)
def test_a_program_ends_the_same(code: str, status: int, err: str) -> None:
    """By exit code, by signal, and after what was to run at its end."""
    assert both(code) == Result(status, "", err)


def test_an_uncaught_error() -> None:
    """The traceback begins in the program."""
    told = both("def f():\n    raise ValueError('x')\nf()").err.splitlines()
    assert (told[0], told[-1]) == ("Traceback (most recent call last):", "ValueError: x")
    # Python 3.13 and later show the lines of code, too.
    assert [line for line in told if line.startswith("  File ")] == [
        '  File "<string>", line 3, in <module>',
        '  File "<string>", line 2, in f',
    ]


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
    """By the module's name, by a name that the package's face takes from it, or through a helper, in that order."""

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
