"""`pytest --mps --mps-baseline`: a line that begins to wait or to run on the CPU turns the session red, once."""

from __future__ import annotations

import linecache
import sys

import pytest

from gate import Gate, gate, loaded, section

__all__ = ["gate", "loaded"]  # fixtures

pytest_plugins = ["pytester"]

STRICT = ("-W", "ignore", "--mps-baseline", "b.txt")
UPDATE = (*STRICT, "--mps-update-baseline")

LIBRARY = """\
import torch

def train(x, steps):
    for _ in range(steps):
        x = x * 2
    return x

def pick(x):
    return torch.embedding_renorm_(x, torch.tensor([0]).to(x.device), 1.0, 2.0)
"""
WAITING = LIBRARY.replace("    return x\n", "        total = x.sum().item()\n    return x\n", 1)
SUITE = """\
import torch, lib_under_test as lib

def test_train():
    assert lib.train(torch.ones(2, device="mps"), 3).sum().item() == 16

def test_again():
    lib.train(torch.ones(2, device="mps"), 20)

def test_pick():
    assert lib.pick(torch.ones(2, 2, device="mps")).cpu()[1, 0] == 1
"""


@pytest.fixture
def suite(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """A library that runs one operator on the CPU, tests that read results, and the baseline that goes with them."""
    monkeypatch.syspath_prepend(gate.path)
    write(gate, LIBRARY)
    gate.write(test_it=SUITE)
    assert gate.run(*UPDATE).ret == pytest.ExitCode.OK
    return gate


def write(gate: Gate, library: str) -> None:
    """The library anew."""
    (gate.path / "lib_under_test.py").write_text(library)
    sys.modules.pop("lib_under_test", None)
    linecache.clearcache()


def entries(gate: Gate) -> list[str]:
    """The baseline without its comments."""
    return [line for line in (gate.path / "b.txt").read_text().splitlines() if line and not line.startswith("#")]


PICK = (
    "aten::embedding_renorm_  lib_under_test.py pick  | "
    "return torch.embedding_renorm_(x, torch.tensor([0]).to(x.device), 1.0, 2.0)"
)


def test_known_lines_are_green(suite: Gate) -> None:
    """The library's line on the CPU is known; what the tests read for themselves is no matter of the baseline."""
    assert entries(suite) == [PICK]
    result = suite.run(*STRICT)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["anymps: baseline b.txt (1 line)"])
    write(suite, "# moved\n\n" + LIBRARY)
    assert suite.run(*STRICT).ret == pytest.ExitCode.OK


def test_new_wait_is_red(suite: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """An `.item()` in the library turns the session red although all tests pass; GitHub Actions get an error."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    write(suite, WAITING)
    result = suite.run(*STRICT)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=3)
    lines = section(result)
    at = lines.index("Not in the baseline b.txt:")
    assert lines[at : at + 4] == [
        "Not in the baseline b.txt:",
        "  waits for the GPU (item), 23 times  lib_under_test.py:6  | total = x.sum().item()",
        "      in test_it.py::test_again, test_it.py::test_train",
        "If that is intended, pass --mps-update-baseline.",
    ]
    assert [line for line in result.outlines if line.startswith("::error")] == [
        "::error file=lib_under_test.py,line=6,title=Waits for the GPU::item, 23 times, not in the baseline%0A"
        "In 2 tests, such as test_it.py::test_again%0AIf that is intended, pass --mps-update-baseline."
    ]


def test_new_fallback_is_red(suite: Gate) -> None:
    """So does an operator on the CPU, wherever it is called from."""
    own = "torch.embedding_renorm_(torch.ones(2, 2).to('mps'), torch.tensor([0]).to('mps'), 1.0, 2.0)"
    suite.write(test_it=f"{SUITE}\ndef test_own():\n    {own}\n")
    linecache.clearcache()
    result = suite.run(*STRICT)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    lines = section(result)
    at = lines.index("Not in the baseline b.txt:")
    assert lines[at + 1] == f"  aten::embedding_renorm_ ran on the CPU, once  test_it.py:13  | {own}"


def test_update(suite: Gate) -> None:
    """An update adds what is new, takes out what is no longer in the code, and leaves comments where they are."""
    write(suite, WAITING)
    baseline = suite.path / "b.txt"
    baseline.write_text(f"# renorm: filed upstream\n{PICK}\nitem  lib_under_test.py old  | gone.item()\n# end\n")
    result = suite.run(*UPDATE)
    assert result.ret == pytest.ExitCode.OK
    assert section(result)[-1] == "baseline b.txt: 1 added, 1 removed"
    assert baseline.read_text().splitlines() == [
        "# renorm: filed upstream",
        PICK,
        "# end",
        "item  lib_under_test.py train  | total = x.sum().item()",
    ]
    assert suite.run(*STRICT).ret == pytest.ExitCode.OK


def test_doctests(suite: Gate) -> None:
    """A library file with doctests stays the library's: its lines count, the lines of the text do not."""
    write(
        suite,
        WAITING + 'def shown():\n    """\n    >>> (lambda: torch.ones(1, device="mps").item())()\n    1.0\n    """\n',
    )
    result = suite.run(*STRICT, "--doctest-modules")
    result.assert_outcomes(passed=4)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    lines = section(result)
    at = lines.index("Not in the baseline b.txt:")
    assert lines[at + 1] == "  waits for the GPU (item), 23 times  lib_under_test.py:6  | total = x.sum().item()"
    assert len(lines) == at + 4


def test_part_of_the_suite(suite: Gate) -> None:
    """A line that a part of the suite does not meet is neither an error nor taken out."""
    assert suite.run(*STRICT, "-k", "train").ret == pytest.ExitCode.OK
    assert suite.run(*UPDATE, "-k", "train").ret == pytest.ExitCode.OK
    assert entries(suite) == [PICK]


def test_workers_agree(suite: Gate) -> None:
    """With pytest-xdist the lines of all workers are held to it; nothing comes after the last line of pytest."""
    pytest.importorskip("xdist")
    write(suite, WAITING)
    result = suite.run_alone(*STRICT, "-n", "2", plugins="xdist.plugin,anymps.pytest_plugin")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["  waits for the GPU (item), 23 times  lib_under_test.py:6 *"])
    assert result.errlines == []


def test_a_line_that_is_no_entry(gate: Gate) -> None:
    """It ends the run before it starts; other mistakes are those of a manifest."""
    (gate.path / "bad.txt").write_text("# x\nitem lib.py train x.item()\n")
    result = gate.run("--mps-baseline", "bad.txt")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert [line for line in result.errlines if line][-1].endswith(
        f"{gate.path}/bad.txt:2: a line is what happens, file and function, and the line's text "
        "(`item  src/loop.py train  | x.item()`): 'item lib.py train x.item()'"
    )
