"""What a script changed in Python is put aside while anymps works after it, and is in its place again afterwards."""

from __future__ import annotations

import builtins
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time
import types
import warnings
from pathlib import Path

import pytest

from anymps._own_imports import hide_from_script, own_imports
from anymps._own_python import OwnPython
from processes import clean_environment


@pytest.fixture
def python() -> OwnPython:
    """Python as it is before the script."""
    return OwnPython()


def test_functions_are_those_of_python(python: OwnPython, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of modules and of their classes; afterwards they are the script's again."""

    def broken(*_: object) -> None:
        raise ValueError("the script's")

    real = (json.dumps, time.time, builtins.open, os.path.join, pathlib.Path.exists)
    monkeypatch.setattr(json, "dumps", broken)
    monkeypatch.setattr(time, "time", broken)
    monkeypatch.setattr(builtins, "open", broken)
    monkeypatch.setattr(os.path, "join", broken)
    monkeypatch.setattr(pathlib.Path, "exists", broken)
    with python.restored():
        assert (json.dumps, time.time, builtins.open, os.path.join, pathlib.Path.exists) == real
    assert {json.dumps, time.time, builtins.open, os.path.join, pathlib.Path.exists} == {broken}


def test_what_is_put_back_for_good_stays(python: OwnPython, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in of a recording, which closing it takes away, does not come back."""
    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    with python.restored():
        time.monotonic = real = lambda: 1.0
    assert time.monotonic is real


def test_modules_and_variables_are_there_again(python: OwnPython, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the script put another module in the place of one; variables that it set keep their values."""
    other = types.ModuleType("textwrap")
    monkeypatch.setitem(sys.modules, "textwrap", other)
    monkeypatch.delitem(sys.modules, "shlex", raising=False)
    monkeypatch.delenv("PATH")
    monkeypatch.setenv("HOME", "/the/script's")
    with python.restored():
        assert sys.modules["textwrap"] is textwrap
        assert "PATH" in os.environ
        assert os.environ["HOME"] == "/the/script's"
    assert sys.modules["textwrap"] is other


def test_signals_limits_and_warnings_disturb_nothing(python: OwnPython) -> None:
    """A timer is ended, a low limit of recursion is raised, and a warning is no error."""

    def rings(*_: object) -> None:
        raise TimeoutError

    limit, handler = sys.getrecursionlimit(), signal.signal(signal.SIGALRM, rings)
    depth = 0
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        frame, depth = frame.f_back, depth + 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            signal.setitimer(signal.ITIMER_REAL, 3600, 3600)
            sys.setrecursionlimit(depth + 40)
            with python.restored():
                assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
                assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN
                assert sys.getrecursionlimit() > depth + 900
                warnings.warn("ours", UserWarning, stacklevel=1)
            assert sys.getrecursionlimit() == depth + 40
        assert signal.getsignal(signal.SIGALRM) is rings
    finally:
        sys.setrecursionlimit(limit)
        signal.signal(signal.SIGALRM, handler)


def test_closed_streams_are_opened_again(tmp_path: Path) -> None:
    """As objects or by their descriptors; what is said then reaches the same place, and so do files by their names."""
    code = """
    import os, sys
    from anymps._own_python import OwnPython
    python = OwnPython()
    sys.stderr.close()
    os.close(1)
    os.mkdir("gone")
    os.chdir("gone")
    os.rmdir("../gone")
    with python.restored():
        print("out")
        print("err", file=sys.stderr)
        assert os.listdir() == []
    assert sys.stderr.closed
    """
    words = [sys.executable, "-c", textwrap.dedent(code)]
    ended = subprocess.run(words, check=False, capture_output=True, text=True, cwd=tmp_path, env=clean_environment())
    assert (ended.stdout, ended.stderr) == ("out\n", "err\n")


def test_a_stream_of_a_notebook_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """One without a descriptor is used as it is."""
    text = io.StringIO()
    monkeypatch.setattr(sys, "stderr", text)
    python = OwnPython()
    monkeypatch.setattr(sys, "stderr", None)
    with python.restored():
        assert sys.stderr is text
    assert sys.stderr is None


def test_imports_come_from_the_interpreters_own_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not from a folder that the script put first, nor from `sys.modules` as it left it; its modules come back."""
    for name in ("jinja2", "markupsafe", "html"):
        (tmp_path / f"{name}.py").write_text("MINE = True\n", encoding="utf-8")
        monkeypatch.setitem(sys.modules, name, sys.modules.get(name, sys))  # is not there afterwards if it was not
        for loaded in [module for module in sys.modules if module.partition(".")[0] == name]:
            monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.syspath_prepend(str(tmp_path))
    import html

    import jinja2

    assert jinja2.MINE is html.MINE is True  # type: ignore[attr-defined]
    with own_imports():
        import html as real_html

        import jinja2 as real

        assert real.Environment is not None and real_html.escape("<") == "&lt;"
    assert sys.modules["jinja2"] is jinja2
    assert sys.modules["html"] is html
    assert sys.path[0] == str(tmp_path)


def test_a_script_gets_its_own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As under python, though anymps has loaded the package of that name; others stay loaded."""
    import click
    import rich

    (tmp_path / "click.py").write_text("MINE = True\n", encoding="utf-8")
    for loaded in [module for module in sys.modules if module.partition(".")[0] == "click"]:
        monkeypatch.setitem(sys.modules, loaded, sys.modules[loaded])  # puts it back afterwards
    monkeypatch.syspath_prepend(str(tmp_path))
    hide_from_script()
    import click as mine

    assert mine.MINE is True and mine is not click  # type: ignore[attr-defined]
    assert sys.modules["rich"] is rich
