"""The sanitizers that the nightly workflow runs the native core under do report: planted faults prove it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sanitized import SANITIZERS, Fault, Sanitizer, compiler, environment, files_of, run_file, unreported

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux" or not shutil.which("g++"), reason="needs g++ on Linux"),
]


def has_runtime(sanitizer: Sanitizer) -> bool:
    """Whether this compiler brings the sanitizer: not every distribution's does."""
    name = sanitizer.runtime
    answer = subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return Path(answer.stdout.strip()).is_absolute()


@pytest.mark.parametrize("name", SANITIZERS)
def test_planted_faults_are_reported(name: str) -> None:
    """Each fault ends the process, with the sanitizer's own name for it."""
    sanitizer = SANITIZERS[name]
    if not has_runtime(sanitizer):
        pytest.skip(f"this g++ has no {sanitizer.runtime}")
    assert unreported(sanitizer) == []


def test_what_is_not_reported_is_told() -> None:
    """A function without a fault counts as one that was missed."""
    harmless = Fault('extern "C" int fault(int n) { return n; }', "AddressSanitizer: heap-buffer-overflow")
    address = SANITIZERS["address"]
    if not has_runtime(address):
        pytest.skip(f"this g++ has no {address.runtime}")
    blind = Sanitizer(address.flags, address.runtime, address.options, (harmless,))
    assert unreported(blind) == ["AddressSanitizer: heap-buffer-overflow: ended with 0 and said ''"]


def built(folder: Path, source: str) -> Path:
    """A library of this C++ source under the address sanitizer; the test is left out where there is none."""
    address = SANITIZERS["address"]
    if not has_runtime(address):
        pytest.skip(f"this g++ has no {address.runtime}")
    path = folder / "planted.so"
    (folder / "planted.cpp").write_text(source + "\n", encoding="utf-8")
    command = [*compiler(address).split(), "-O0", "-fPIC", "-shared", str(folder / "planted.cpp"), "-o", str(path)]
    subprocess.run(command, check=True)
    return path


def test_an_exception_of_cpp_is_none_of_its_business(tmp_path: Path) -> None:
    """The runtime knows what throws, although Python brings no C++ library."""
    path = built(tmp_path, 'extern "C" int fault(int n) { try { throw n; } catch (int caught) { return caught; } }')
    call = f"import ctypes; print(ctypes.CDLL({str(path)!r}).fault(7))"
    ended = subprocess.run(
        [sys.executable, "-c", call],
        check=False,
        env=environment(SANITIZERS["address"]),
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "7\n", "")


def test_the_report_of_a_test_that_ends_its_process_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """pytest has caught what was printed until then, and cannot say it any more."""
    path = built(tmp_path, SANITIZERS["address"].faults[0].source)
    file = tmp_path / "test_planted.py"
    file.write_text(f"import ctypes\ndef test_it():\n    ctypes.CDLL({str(path)!r}).fault(1)\n", encoding="utf-8")
    assert not run_file(SANITIZERS["address"], str(file))
    said = capsys.readouterr().out
    assert "ERROR: AddressSanitizer: heap-buffer-overflow on address" in said
    assert f"\n{file}: reports: 1, status 1, " in said
    file.write_text("def test_it():\n    pass\n", encoding="utf-8")
    assert run_file(SANITIZERS["address"], str(file))
    assert f"{file}: well, " in capsys.readouterr().out


def test_parts_are_all_files_once() -> None:
    """Each N-th file, from the first one on, from the second one on, …"""
    parts = [files_of(["tests/device", "tests/capture/test_capture.py"], (number, 3)) for number in (1, 2, 3)]
    whole = files_of(["tests/device", "tests/capture/test_capture.py"], (1, 1))
    assert "tests/device/test_views.py" in whole
    assert "tests/capture/test_capture.py" in whole
    assert sorted(file for part in parts for file in part) == sorted(whole)
