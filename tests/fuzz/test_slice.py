"""A slice of the fuzzer with a fixed seed; the nightly workflow runs ten minutes of it with another one each night."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fuzz import worker
from fuzz.__main__ import Worker, cases, fuzz
from fuzz.targets import TARGETS

_LIGHT = ["baseline", "recording", "settings", "text", "wheel"]  # none of them loads torch


@pytest.mark.parametrize(("targets", "most"), [(_LIGHT, 48), (["recording"], 120)])
def test_a_slice_of_damaged_files(
    targets: list[str], most: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is in the files, the commands end well or in one line."""
    failed = fuzz(targets, 600, 20_261, tmp_path, most=most)
    told = capsys.readouterr().out
    assert failed == [], told
    assert told.startswith(f"{most} cases, seed 20261: "), told


@pytest.mark.parametrize(
    "name",
    [
        target if target in _LIGHT else pytest.param(target, marks=pytest.mark.slow)
        for target in sorted({*TARGETS} - {"text"})
    ],
)
def test_good_files_are_read(name: str) -> None:
    """Each kind has a file that its command reads to the end: a refused one would test nothing behind the refusal."""
    data = TARGETS[name].seeds()[0]
    with worker.places():
        ends = [worker.run(list(words)) for words in TARGETS[name].place(data)]
    # What notebooks and scripts would do is no file's matter.
    assert [end for end in ends if end[0] not in (0, 3) and "is not run here" not in end[2]] == []


def test_the_same_seed_gives_the_same_cases() -> None:
    """So a night's run can be made again."""
    first, again, other = (
        [data for (_, data), _ in zip(cases(["baseline", "wheel"], seed), range(20), strict=False)]
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other
    assert len(set(first)) > 10


@pytest.mark.parametrize(
    ("status", "output", "errors", "wrong"),
    [
        (0, "", "anymps: it is damaged\n", ""),
        (2, "", "Traceback (most recent call last):\n", "Traceback (most recent call last)"),
        (0, "", "Exception ignored in: <generator object>\n", "Exception ignored"),
        (70, "", "", "exit status 70"),
        (2, "", "anymps: one\nanymps: two\n", "an error of several lines"),
        (2, "", "anymps: a\u202eb\n", "the character '\\u202e' on stderr"),
        (2, "", "anymps: \x1b[2J\n", "the character '\\x1b' on stderr"),
    ],
)
def test_what_is_wrong(status: int, output: str, errors: str, wrong: str) -> None:
    """Tracebacks in any form, faults of anymps, and control characters."""
    assert worker.judge(status, output, errors) == wrong


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory hold on Linux")
def test_limits_end_a_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory beyond 1 GiB is an error in the case, a signal kills its process, and the next case has another."""
    code = (
        "import os\n"
        "from fuzz import targets, worker\n"
        "def place(data):\n"
        "    if data == b'memory': bytearray(3 << 29)\n"
        "    if data == b'signal': os.kill(os.getpid(), 11)\n"
        "    return []\n"
        "targets.TARGETS['bad'] = targets.Target(lambda: [b''], place)\n"
        "worker.serve()\n"
    )
    asked, answers = Worker(["bad"], ["-c", code]), {}
    try:
        for text in ("signal", "memory", "well"):
            file = tmp_path / text
            file.write_text(text)
            answers[text] = asked.ask("bad", file)["wrong"]
    finally:
        asked.close()
    assert answers == {"signal": "the process died: -11", "memory": "MemoryError", "well": ""}
