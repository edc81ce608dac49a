"""An order goes to its process unchanged, is held to its limits, and its answer has what was noted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import TimeoutError
from dataclasses import dataclass
from pathlib import Path

import pytest

from anymps._cache import cache_home
from anymps._settings import Settings
from anymps.commands._target import Target
from anymps.plan._scenario import parse_scenario
from anymps.plan._shapes import Shapes
from anymps.runs import Observer, Order, Runner, run, together, undisturbed


@dataclass
class Seen(Observer):
    """Says what is on, and how often an optimizer stepped."""

    word: str

    def start(self, order: Order, folder: Path, state: object) -> None:
        self.steps, self.on = 0, order.on

    def stepped(self) -> bool:
        self.steps += 1
        return True

    def facts(self, ending: Mapping[str, object]) -> dict[str, object]:
        return {"word": self.word, "steps": self.steps, "on": self.on, "ending": dict(ending)}


def test_an_order_goes_to_its_process_unchanged(tmp_path: Path) -> None:
    """With what it notes, and the settings of the device."""
    order = Order(
        ("-m", "train", "--lr", "1"),
        device=Settings(mac="M1 8GB", fallback=True),
        observer=Shapes(parse_scenario("batch=8,bf16"), placed=True),
        sources={"/a.py": b"x = 1\n"},
        environment={"A": None},
    )
    order.write(tmp_path / "order")
    assert Order.read(tmp_path / "order") == order


@pytest.mark.parametrize("words", [["train.py"], ["train.py", "-m", "x"], ["-m", "train"], ["-m", "train", "-x"]])
def test_words_name_a_target(words: list[str]) -> None:
    """As `python` takes them."""
    target = Target.of(words)
    assert target.words == words
    assert target.is_module == (words[0] == "-m")


SCRIPT = """
import os, sys, torch
print(sys.argv[1:], os.environ.get("ADDED"), os.environ.get("TAKEN"), torch.initial_seed())
open("new.txt", "w").write("1")
weight = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([weight])
for step in range(5):
    weight.grad = torch.ones(1)
    optimizer.step()
    print(step)
print("warning", file=sys.stderr)
raise KeyError("lost")
"""


def test_what_an_answer_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The status, both streams, the files, the error with its lines, and what the observer says; then all is gone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TAKEN", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=":")
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    environment = {"ADDED": "2", "TAKEN": None}
    order = Order(
        ("train.py", "--x"), on="cpu", recorded=False, observer=Seen("w"), environment=environment, steps=9, seconds=300
    )
    with run(order) as answer:
        assert answer.output.splitlines() == ["['--x'] 2 None 0", "0", "1", "2", "3", "4"]
        assert answer.errors.splitlines()[0] == "warning"
        assert answer.status == 1
        noted = dict(answer.noted)
        ending = noted.pop("ending")
        assert (ending["exception"], ending["status"]) == ("KeyError", 1)
        assert noted == {
            "error": "KeyError: 'lost'",
            "trail": [[os.path.realpath(script), 12]],
            "early": False,
            "loop": None,
            "unrecorded": "",
            "written": [str(tmp_path / "new.txt")],
            "removed": [],
            "word": "w",
            "steps": 5,
            "on": "cpu",
        }
        assert (answer.files / str(tmp_path / "new.txt")[1:]).read_text() == "1"
        assert not answer.recording.exists()
    assert not answer.folder.exists()
    assert not (tmp_path / "new.txt").exists()


def test_the_cache_stays_open_to_other_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler writes there and reads there, also where no variable names it."""
    monkeypatch.delenv("ANYMPS_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    made = cache_home() / "made"
    made.parent.mkdir(parents=True)
    (tmp_path / "train.py").write_text(f"import subprocess\nsubprocess.run(['touch', {str(made)!r}], check=True)\n")
    with run(Order((str(tmp_path / "train.py"),), on="cpu", recorded=False, seconds=300)) as answer:
        assert (answer.status, answer.errors) == (0, "")
    assert made.exists()


def alive(number: int) -> bool:
    """Whether a process runs (one that is dead and unburied does not)."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{number}/stat")
    return not status.exists() or status.read_text().rsplit(")", 1)[1].split()[0] != "Z"


SLEEPERS = """
import subprocess, sys
children = [
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=own) for own in (0, 1)
]
print(*(child.pid for child in children), flush=True)
"""


def test_steps_and_seconds_end_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its steps it has ended well. One that is over its time says what it knew, and leaves no process behind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=":")
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "long.py").write_text(SLEEPERS + SCRIPT.replace("print(step)", "import time; time.sleep(600)"))
    orders = [
        Order(("train.py",), on="cpu", recorded=False, observer=Seen("w"), steps=2, seconds=300),
        Order(("long.py",), on="cpu", recorded=False, observer=Seen("w"), steps=9, seconds=20, may_write=True),
    ]

    def told(order: Order) -> tuple[object, ...]:
        with run(order) as answer:
            sleepers = answer.output.partition("\n")[0] if order.may_write else ""
            assert not any(alive(int(number)) for number in sleepers.split())
            return answer.status, answer.noted["early"], answer.noted["steps"], answer.noted["error"]

    first, second = together([lambda: told(orders[0]), lambda: told(orders[1])])
    assert first == (0, True, 2, "")
    assert second == (None, False, 1, "KeyboardInterrupt")
    assert (tmp_path / "new.txt").read_text() == "1"


def test_what_else_this_process_starts_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An order that ends meanwhile ends what came after its start, but waits for this."""
    monkeypatch.chdir(tmp_path)
    waits = "import os\nopen('began', 'w').close()\nwhile not os.path.exists('go'): pass\n"
    (tmp_path / "short.py").write_text(waits)

    def short() -> int | None:
        with run(Order(("short.py",), on="", seeded=False, recorded=False, may_write=True)) as answer:
            return answer.status

    with Runner(1) as runner:
        ended = runner.submit(short)
        while not (tmp_path / "began").exists():
            pass
        with undisturbed():
            own = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
            (tmp_path / "go").touch()
            with pytest.raises(TimeoutError):
                ended.result(timeout=3)
            own.communicate(b"x\n")
        assert (own.returncode, ended.result()) == (0, 0)


def test_one_that_fails_ends_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the rest."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "long.py").write_text("import time\nopen('began', 'w').close()\ntime.sleep(600)\n")

    def fail() -> int | None:
        while not (tmp_path / "began").exists():
            pass
        raise ValueError("enough")

    def long() -> int | None:
        with run(Order(("long.py",), on="", seeded=False, recorded=False, may_write=True)) as answer:
            return answer.status

    with pytest.raises(ValueError, match="enough"):
        together([fail, long])


def test_a_file_that_hides_a_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch cannot be imported beside it, on no device."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "typing_extensions.py").write_text("")
    (tmp_path / "train.py").write_text("")
    with run(Order(("train.py",), on="cpu", recorded=False)) as answer:
        assert (answer.status, answer.noted) == (2, {})
        assert answer.errors == (
            "anymps: typing_extensions.py beside the script is imported in place of the package typing_extensions, "
            "which torch needs: give it another name\n"
        )
