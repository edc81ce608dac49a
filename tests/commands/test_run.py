"""`anymps run` behaves as `python` does: each script is run by both, in real processes, with a fake session."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import anymps
from anymps.commands._target import Target, TargetNotFoundError
from processes import PATIENCE

SOURCE_ROOT = str(Path(anymps.__file__).parents[1])

REPORT = r'os.write(2, b"REPORT\n")'
# What the console script does, with a session that notes what it is told in a file and prints a report of one line.
DRIVER = """
import json, os, sys
sys.path[:0 if getattr(sys.flags, "safe_path", False) else 1] = ["what a console script has here"]

def note(*words):
    with open(os.environ["TEST_NOTES"], "a") as file:
        file.write(json.dumps(words) + "\\n")

class FakeSession:
    def start(self, target):
        note("start")
    def finish(self, ending):
        note("finish", ending)
        os.write(2, b"REPORT\\n")  # as the new process does
        return int(os.environ.get("TEST_WANTED", "0"))
    def keep(self, ending):
        note("keep", ending)

from anymps.commands._runner import run_target
from anymps.commands._show import say
from anymps.commands._target import Target
from anymps._errors import AnympsError

words = sys.argv[1:]
try:
    if words[0] == "-m":
        status = run_target(Target(words[1], tuple(words[2:]), is_module=True), FakeSession())
    else:
        status = run_target(Target(words[0], tuple(words[1:])), FakeSession())
except AnympsError as error:
    say(error)
    status = error.exit_code
sys.exit(status)
"""


class Result:
    """How a process ended, and what its session was told."""

    def __init__(self, status: int, out: str, err: str, notes: list[Any]) -> None:
        self.status, self.out, self.err, self.notes = status, out, err, notes

    @property
    def ending(self) -> dict[str, Any]:
        """What `finish` was told; there must be one `start` and one `finish`."""
        assert [note[0] for note in self.notes] == ["start", "finish"]
        ending: dict[str, Any] = self.notes[1][1]
        return ending


class Runner:
    """Runs scripts in a directory, by python and by us."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "driver").mkdir()
        self.driver = directory / "driver" / "driver.py"
        self.driver.write_text(DRIVER)
        self.notes = directory / "notes"

    def environment(self, **more: str) -> dict[str, str]:
        # No byte code: the two runs must find the same files.
        return {
            **os.environ,
            "PYTHONPATH": SOURCE_ROOT,
            "PYTHONDONTWRITEBYTECODE": "1",
            "TEST_NOTES": str(self.notes),
            **more,
        }

    def write(self, text: str, name: str = "script.py") -> str:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return name

    def python(self, *words: str, stdin: str = "") -> Result:
        """Run as python does."""
        return self._run([sys.executable, *words], stdin)

    def ours(self, *words: str, stdin: str = "", **environment: str) -> Result:
        """Run as we do."""
        return self._run([sys.executable, str(self.driver), *words], stdin, **environment)

    def _run(self, command: list[str], stdin: str, **environment: str) -> Result:
        self.notes.unlink(missing_ok=True)
        answer = subprocess.run(
            command,
            check=False,
            cwd=self.directory,
            env=self.environment(**environment),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        return Result(answer.returncode, answer.stdout, answer.stderr, self.read_notes())

    def read_notes(self) -> list[Any]:
        if not self.notes.exists():
            return []
        return [json.loads(line) for line in self.notes.read_text().splitlines()]

    def both(self, *words: str, stdin: str = "") -> Result:
        """Run both ways, check that output and status are the same and that ours adds only the report."""
        theirs = self.python(*words, stdin=stdin)
        ours = self.ours(*words, stdin=stdin)
        assert ours.out == theirs.out
        assert ours.err == theirs.err + "REPORT\n"
        assert ours.status == theirs.status
        return ours


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    """A directory for scripts. Links resolved: python names scripts by their real place."""
    return Runner(tmp_path.resolve())


LOOK_AROUND = """
import sys, __main__
print(sys.argv, sys.path[0], __name__, __file__)
print(__spec__ and (__spec__.name, __spec__.origin), __package__, __cached__, __doc__)
print(type(__loader__).__name__, sorted(set(globals()) - {"sys", "__main__"}))
print(__main__ is sys.modules["__main__"], __main__.__dict__ is globals(), type(__builtins__).__name__)
width: int = 3
print(__main__.__annotations__)
"""


@pytest.mark.parametrize("name", ["script.py", "sub/script.py", "no_ending"])
def test_a_script_sees_what_python_shows_it(runner: Runner, name: str) -> None:
    """Arguments, import path, file, spec, loader and the names of the main module are those of python."""
    result = runner.both(runner.write(LOOK_AROUND, name), "a", "--mac", "--", "-m")
    assert result.ending == {"status": 0}


def test_a_linked_script_imports_from_its_real_directory(runner: Runner) -> None:
    """The import path starts where the script really lies, as python has it, and not where the link does."""
    runner.write("WHO = 'neighbour'\n", "real/neighbour.py")
    runner.write("import neighbour, sys\nprint(neighbour.WHO, sys.path[0], __file__, sys.argv)\n", "real/script.py")
    (runner.directory / "link.py").symlink_to(runner.directory / "real" / "script.py")
    assert runner.both("link.py").out.startswith("neighbour ")


def test_modules(runner: Runner) -> None:
    """`-m` runs modules, submodules and packages with __main__, with the spec and arguments that python gives them."""
    runner.write("print('parent', __import__('sys').argv)\n", "package/__init__.py")
    runner.write(LOOK_AROUND, "package/__main__.py")
    runner.write("from . import __name__ as parent\nprint(parent)\n" + LOOK_AROUND, "package/inner.py")
    runner.write(LOOK_AROUND, "plain.py")
    for name in ("package", "package.inner", "plain"):
        runner.both("-m", name, "x", "-m", "--record")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="PYTHONSAFEPATH exists from Python 3.11 on")
def test_no_path_entry_under_safe_path(runner: Runner) -> None:
    """Where python adds no script directory (PYTHONSAFEPATH, Python 3.11), we add none and take none away."""
    script = runner.write("import sys\nprint(sys.path[0] == sys.argv[1])\n")
    result = runner.ours(script, "what a console script has here", PYTHONSAFEPATH="1")
    assert result.out == "True\n"


def test_classes_of_the_script_can_be_pickled(runner: Runner) -> None:
    """A class of the script is found again as `__main__.Name`, also by a process that is started afresh."""
    runner.both(
        runner.write(
            "import multiprocessing, pickle\n"
            "class Point:\n"
            "    def __init__(self, x):\n"
            "        self.x = x\n"
            "def double(point):\n"
            "    return Point(2 * point.x)\n"
            "if __name__ == '__main__':\n"
            "    print(pickle.loads(pickle.dumps(Point(3))).x, Point.__module__)\n"
            "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
            "        print(pool.map(double, [Point(21)])[0].x)\n"
        )
    )


EXITS = (
    "sys.exit()",
    "sys.exit(None)",
    "sys.exit(0)",
    "sys.exit(7)",
    "sys.exit(True)",
    "sys.exit(-1)",
    "sys.exit(256)",
)
TEXTS = ("sys.exit('a text')", "sys.exit(2.5)", "raise SystemExit([1, 2])")
LATE = """
import threading
gate = threading.Event()
def late():
    gate.wait()
    print('late', flush=True)
threading.Thread(target=late).start()
threading.Timer(0.2, gate.set).start()
"""


@pytest.mark.parametrize(
    ("code", "out", "ending"),
    [
        pytest.param("print(input() + input())", "ab\n", {"status": 0}, id="standard input"),
        *((f"print('x')\n{code}", "x\n", {}) for code in EXITS),
        *((code, "", {"status": 1}) for code in TEXTS),
        pytest.param("x = = 1", "", {"exception": "SyntaxError"}, id="syntax"),
        pytest.param(
            "sys.excepthook = lambda *a: print('hook', a[0].__name__, a[2].tb_lineno)\n1 / 0",
            "hook ZeroDivisionError 3\n",
            {"status": 1},
            id="hook of rich and IPython",
        ),
        pytest.param("import atexit\nx = 5\natexit.register(lambda: print(x))", "5\n", {"status": 0}, id="atexit"),
        pytest.param(LATE, "late\n", {"status": 0}, id="threads"),
        pytest.param("print('x', flush=True)\nos._exit(5)", "x\n", {"status": 5, "how": "os._exit"}, id="os._exit"),
        pytest.param(
            "import signal\nsignal.signal(signal.SIGTERM, lambda *a: sys.exit(9))\n"
            "os.kill(os.getpid(), signal.SIGTERM)\nwhile True: pass",
            "",
            {"status": 9},
            id="handler of SIGTERM",
        ),
        pytest.param(
            "import multiprocessing\nwith multiprocessing.get_context('fork').Pool(2) as pool:\n"
            "    print(pool.map(abs, [-1, -2, 3]))",
            "[1, 2, 3]\n",
            {"status": 0},
            id="forked pool",
        ),
    ],
)
def test_a_script_ends_as_under_python(runner: Runner, code: str, out: str, ending: dict[str, object]) -> None:
    """With the same output, status and traceback, and one report behind it."""
    result = runner.both(runner.write(f"import os, sys\n{code}\n"), stdin="a\nb\n")
    assert result.out == out
    assert ending.items() <= result.ending.items()


@pytest.mark.parametrize(
    "code",
    [
        "sys.stderr = None\nsys.exit('a text')",
        "class Text:\n    def __str__(self):\n        raise KeyError('mine')\nsys.exit(Text())",
    ],
)
def test_exit_with_a_text_that_cannot_be_said(runner: Runner, code: str) -> None:
    """Nothing of it is on standard output, and the status is 1, as under python."""
    script = runner.write(f"import sys\n{code}\n")
    theirs, ours = runner.python(script), runner.ours(script)
    assert (ours.status, ours.out) == (theirs.status, theirs.out) == (1, "")


def test_traceback_has_no_frames_of_ours(runner: Runner) -> None:
    """An exception prints the traceback that python prints, cause and context included, then comes the report."""
    result = runner.both(
        runner.write(
            "def f():\n"
            "    try:\n"
            "        1 / 0\n"
            "    except ZeroDivisionError as error:\n"
            "        raise ValueError('bad\\nvalue') from error\n"
            "f()\n"
        )
    )
    assert result.status == 1
    assert result.ending == {
        "status": 1,
        "exception": "ValueError",
        "message": "bad\nvalue",
        "raised_by": "program",
        "place": {
            "file": str(runner.directory / "script.py"),
            "line": 5,
            "function": "f",
            "source": "raise ValueError('bad\\nvalue') from error",
        },
    }


def test_error_while_a_parent_package_is_imported(runner: Runner) -> None:
    """A package that fails on import is a failure of the script's, with its traceback, not a missing module."""
    runner.write("import not_there_at_all\n", "package/__init__.py")
    runner.write("", "package/inner.py")
    result = runner.ours("-m", "package.inner")
    assert result.status == 1
    lines = result.err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].startswith(f'  File "{runner.directory}/package/__init__.py", line 1')
    assert lines[-2:] == ["ModuleNotFoundError: No module named 'not_there_at_all'", "REPORT"]


def test_keyboard_interrupt(runner: Runner) -> None:
    """Ctrl-C shows the traceback, then the report, and ends with 130."""
    script = runner.write(
        "import os, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests may run where it is ignored\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "while True: pass\n"
    )
    result = runner.ours(script)
    assert result.status == 130
    assert result.err.splitlines()[-2:] == ["KeyboardInterrupt", "REPORT"]
    assert result.ending["status"] == 130
    assert result.ending["exception"] == "KeyboardInterrupt"


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_sigterm_keeps_the_recording(runner: Runner) -> None:
    """SIGTERM closes the recording without a report, runs none of the script's code, and the process dies by it."""
    script = runner.write(
        "import os, signal\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    while True: pass\n"
        "finally:\n"
        "    print('not reached', flush=True)\n"
    )
    theirs = runner.python(script)
    ours = runner.ours(script)
    assert (ours.status, ours.out, ours.err) == (theirs.status, theirs.out, theirs.err) == (-signal.SIGTERM, "", "")
    assert ours.notes == [["start"], ["keep", {"status": 143, "how": "SIGTERM"}]]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    "end",
    ["os._exit(3)", "sys.exit(3)", "1 / 0", "pass", "os.kill(os.getpid(), signal.SIGTERM)"],
)
def test_forked_children_leave_the_recording_alone(runner: Runner, end: str) -> None:
    """However a forked child ends, it ends as under python, prints no report, and closes nothing."""
    runner.both(
        runner.write(
            "import os, signal, sys\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            f"    {end}\n"
            "else:\n"
            "    print(os.waitpid(child, 0)[1])\n"
        )
    )


def test_status_of_the_session(runner: Runner) -> None:
    """The session's status counts where the script ends with 0, and never hides the script's own."""
    good, bad = runner.write("pass\n", "good.py"), runner.write("raise SystemExit(4)\n", "bad.py")
    os_exit = runner.write("import os\nos._exit(0)\n", "os_exit.py")
    assert runner.ours(good, TEST_WANTED="3").status == 3
    assert runner.ours(bad, TEST_WANTED="3").status == 4
    assert runner.ours(os_exit, TEST_WANTED="3").status == 3


def test_a_report_that_fails_does_not_hide_the_script(runner: Runner) -> None:
    """A fault in the report keeps its traceback; the status is the script's, or 70 if that was 0."""
    runner.driver.write_text(DRIVER.replace(REPORT, "raise KeyError('our own fault')"))
    good, bad = runner.write("pass\n", "good.py"), runner.write("raise SystemExit(4)\n", "bad.py")
    result = runner.ours(good)
    assert result.status == 70
    assert result.err.endswith("KeyError: 'our own fault'\n")
    assert runner.ours(bad).status == 4


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["nowhere.py"], "there is no script nowhere.py"),
        (["folder"], "folder is a directory: name a script in it, or a package with -m"),
        (["model.pt"], "model.pt is not a Python script: it holds null bytes"),
        (["-m", "nowhere"], "there is no module named 'nowhere'"),
        (["-m", "nowhere.inner"], "there is no module named 'nowhere'"),
    ],
)
def test_target_not_found(runner: Runner, words: list[str], text: str) -> None:
    """A script or module that is not there is one line and 2, before anything is started."""
    (runner.directory / "folder").mkdir()
    (runner.directory / "model.pt").write_bytes(b"PK\3\4" + bytes(100))
    result = runner.ours(*words)
    assert (result.status, result.out, result.err) == (2, "", f"anymps: {text}\n")
    assert result.notes == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("package", "package is a package without __main__ and cannot be run"),
        ("package.nowhere", "there is no module named 'package.nowhere'"),
    ],
)
def test_submodule_not_found(runner: Runner, name: str, text: str) -> None:
    """What only shows once the parent package is imported closes the recording, without a report."""
    runner.write("", "package/__init__.py")
    result = runner.ours("-m", name)
    assert (result.status, result.err) == (2, f"anymps: {text}\n")
    assert result.notes == [
        ["start"],
        ["keep", {"status": 2, "exception": "TargetNotFoundError", "message": text}],
    ]


def test_unreadable_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script without read permission is told from one that is not there."""
    script = tmp_path / "script.py"
    script.write_text("pass\n")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(TargetNotFoundError) as error:
        Target(str(script)).check()
    assert str(error.value) == f"the script {script} cannot be read: no permission"


def test_a_session_that_may_open_no_further_file(runner: Runner) -> None:
    """A limit of the user's is one line, and no fault of ours; the script's own status still wins."""
    fault = "raise OSError(24, 'Too many open files')"
    runner.driver.write_text(DRIVER.replace(REPORT, fault))
    result = runner.ours(runner.write("pass\n", "good.py"))
    assert (result.status, result.err) == (
        2,
        "anymps: too many files are open at once: allow more (ulimit -n 256)\n",
    )
    assert runner.ours(runner.write("raise SystemExit(4)\n", "bad.py")).status == 4
