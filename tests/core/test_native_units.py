"""What needs no torch in the native core, tested in C++: each `TEST` of tests/native/*_units.cpp is one here."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from harness import NATIVE, PROGRAMS, compile_file, compile_program
from processes import PATIENCE

PARTS = {
    "heap_units": ("locks/locks", "model/heap"),
    "lock_units": ("locks/locks",),
    "philox_units": ("model/philox",),
    "observer_units": (),
    "core_clock_units": ("recorder/tape/core_clock",),
}
_TEST = re.compile(r"^TEST\((\w+)\)", re.MULTILINE)


def names(program: str) -> list[str]:
    """The tests that a program has."""
    return _TEST.findall((PROGRAMS / f"{program}.cpp").read_text(encoding="utf-8"))


def run(binary: Path, *words: str) -> tuple[int, list[str]]:
    done = subprocess.run([str(binary), *words], capture_output=True, text=True, timeout=PATIENCE, check=False)
    return done.returncode, done.stdout.splitlines()


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every program, compiled."""
    directory = tmp_path_factory.mktemp("units")
    return {
        program: compile_program(
            program, [path for part in parts for path in sorted(NATIVE.glob(f"{part}*.cpp"))], program, directory
        )
        for program, parts in PARTS.items()
    }


def test_every_program_is_run() -> None:
    """None lies in the folder that nobody compiles."""
    assert sorted(path.stem for path in PROGRAMS.glob("*_units.cpp")) == sorted(PARTS)


@pytest.mark.parametrize(("program", "name"), [(program, name) for program in PARTS for name in names(program)])
def test_unit(binaries: dict[str, Path], program: str, name: str) -> None:
    """It holds; if not, the program says what does not, and where."""
    status, lines = run(binaries[program], name)
    assert (status, lines) == (0, [f"passed {name}"])


def test_a_failure_is_told(tmp_path: Path) -> None:
    """What does not hold is named with its place, the other tests go on, and the exit code counts the failures."""
    source = tmp_path / "broken.cpp"
    source.write_text(
        '#include "check.h"\n'
        "TEST(good) { EXPECT(true); }\n"
        "TEST(wrong) { EXPECT_EQUAL(1 + 1, 3); }\n"
        'TEST(worse) { EXPECT(false); throw std::runtime_error("all is lost"); }\n'
        'TEST(silent) { EXPECT_THROWS(std::runtime_error, "no", ); }\n'
        'TEST(other) { EXPECT_THROWS(std::runtime_error, "no", throw std::runtime_error("yes")); }\n'
        "int main(int count, char** names) { return check::run(count, names); }\n"
    )
    status, lines = run(compile_file(source, [], "check.h", tmp_path))
    assert (status, lines) == (
        4,
        [
            "passed good",
            f"{source}:3: 1 + 1 is 2, not 3",
            "FAILED wrong",
            f"{source}:4: false",
            "worse:0: raised all is lost",
            "FAILED worse",
            f"{source}:5: raised nothing",
            "FAILED silent",
            f'{source}:6: raised "yes", not "no"',
            "FAILED other",
        ],
    )
