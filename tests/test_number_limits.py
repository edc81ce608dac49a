"""Numbers in texts from outside: none is so long that a command ends with a traceback."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from anymps import UsageError, parse_mac
from anymps._numbers import MOST, digits, read_json, whole
from anymps.commands import main
from anymps.cost import OperatorCall, predict_operator
from anymps.findings._costs import COPY
from anymps.pytest_plugin._marks import read_size
from anymps.rules import parse_torch_version
from recordings import bytes_of, small

LONG = "9" * 5000


def test_digits_and_words() -> None:
    """Up to 18 digits are read as they are, and longer ones as the largest number; other texts are no number."""
    assert (digits("007"), digits("0" * 5000), digits(LONG), digits("9" * 18)) == (7, 0, MOST, 10**18 - 1)
    assert [whole(text) for text in ("8", LONG, "", "-1", "1.5", "²", " 8")] == [8, MOST, *[None] * 5]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (LONG, "a number of 5,000 digits"),
        ("9" * 400, "a number of 400 digits"),
        ("[1e400]", "1e400 is not a finite number"),
        ('{"a": NaN}', "NaN is not a finite number"),
        ("[" + "{}," * 600_000 + "0]", "more than 1,000,000 values"),
    ],
)
def test_json(text: str, why: str) -> None:
    """A number that nothing computes with is refused where it is read."""
    assert read_json("[18446744073709551615, -1, 1e-400, 0.5]") == [2**64 - 1, -1, 0.0, 0.5]
    with pytest.raises(ValueError, match=f"^{why}$"):
        read_json(text)


COMMANDS: tuple[tuple[list[str], str], ...] = (
    (["plan", "--mac", f"M3 Pro {LONG}GB", "s.py"], f"M3 Pro has 18 or 36 GB, not {MOST}"),
    (["plan", "--against", f"M3 Pro {LONG}-core", "s.py"], f'there is no Mac "M3 Pro {MOST}-core"; nearest: '),
    (["plan", "--mac", f"M3 Pro 18GB, macOS {LONG}", "s.py"], ""),
    (["plan", "--torch", f"2.{LONG}", "s.py"], ""),
    (["plan", "--what-if", f"batch={LONG}", "s.py"], "it would be planned"),
    (["plan", "--steps", LONG, "s.py"], ""),
    (["plan", "--seconds", "nan", "s.py"], "Invalid value for '--seconds': 'nan' is not a valid float ("),
    (["plan", "--seconds", "inf", "s.py"], "Invalid value for '--seconds': 'inf' is not "),
    (["verify", "--minutes", "nan"], "Invalid value for '--minutes': 'nan' is not a valid float ("),
    (["run", "--steps", f"{LONG}:2", "s.py"], ""),
    (["coverage", "add", "--torch", f"2.{LONG}"], ""),
    (["bench", "--repeat", LONG, "s.py"], ""),
)


@pytest.mark.parametrize(("command", "expected"), COMMANDS, ids=[" ".join(row[0][:2]) for row in COMMANDS])
@pytest.mark.usefixtures("in_tmp_path")
def test_commands(
    command: list[str], expected: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option with such a number is a mistake of one line, wherever it is noticed."""

    def refuse(*_: object, **__: object) -> None:
        raise UsageError("it would be planned")

    monkeypatch.setattr("anymps.plan.make_plan", refuse)
    monkeypatch.setattr("anymps.device.enable", refuse)
    Path("s.py").touch()
    assert main(command) == 2
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert errors.startswith(f"anymps: {expected}")


def test_texts() -> None:
    """Shapes, sizes and releases."""
    call = OperatorCall.parse(f"aten::relu(float32[{LONG}]) -> (float32[{LONG}])")
    assert predict_operator(call, parse_mac("M3 Pro 18GB"), "2.13").device > 1e6
    assert parse_torch_version(f"2.{LONG}.0").minor == MOST
    assert read_size(f"{LONG} MiB") is None
    assert COPY.of(1, 2**64)[0] > 1e8


def changed(path: Path, statement: str, *values: object) -> str:
    """A recording with one fact changed."""
    path.write_bytes(bytes_of(small()))
    with closing(sqlite3.connect(path)) as database, database:
        assert database.execute(statement, values).rowcount
    return str(path)


@pytest.mark.usefixtures("in_tmp_path")
@pytest.mark.parametrize("value", [LONG, "1e400", '{"steps": ' + LONG + "}"])
def test_meta_of_a_recording(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A recording with such a number is damaged."""
    path = changed(Path("bad.anymps"), "INSERT OR REPLACE INTO meta VALUES ('steps_seen', ?)", value)
    assert main(["report", path]) == 2
    assert capsys.readouterr().err.count("\n") == 1


SUITES: tuple[Any, ...] = (3, "x", None, {"passed": "x"}, {"passed": 1, "expected": [[1], {"a": 1}]}, {"passed": [2]})


@pytest.mark.usefixtures("in_tmp_path")
@pytest.mark.parametrize("one", SUITES, ids=str)
def test_suites_of_mixed_types(one: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """What the shards of a suite note of it need not be numbers: those that are add up."""
    paths = [
        changed(Path(name), "INSERT OR REPLACE INTO meta VALUES ('suite', ?)", json.dumps(suite))
        for name, suite in (("a.anymps", {"passed": 2}), ("b.anymps", one), ("c.anymps", {"passed": 5}))
    ]
    for files in (paths, paths[:2]):
        assert main(["report", *files]) in (0, 2)
        assert capsys.readouterr().err.count("\n") <= 1
