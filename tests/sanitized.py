"""Run tests with a native core that was compiled under a sanitizer; first, planted faults prove that it reports.

    python -m tests.sanitized address                      # AddressSanitizer and UBSan, over tests/device
    python -m tests.sanitized thread tests/capture/test_capture.py # ThreadSanitizer, over what is named

It needs g++ with its sanitizers (apt install g++) and, for threads, setarch (apt install util-linux). Python and torch
are as they are: what goes wrong in their code alone is not seen.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEFAULT = ("tests/device",)


@dataclass(frozen=True)
class Fault:
    """A planted mistake: a C++ function `fault`, and what the sanitizer calls it."""

    source: str
    report: str


@dataclass(frozen=True)
class Sanitizer:
    """How a core is compiled and run under it, and faults that it must report."""

    flags: str
    runtime: str
    options: dict[str, str]
    faults: tuple[Fault, ...]
    # ThreadSanitizer of GCC 12 cannot live with addresses as random as Linux 6 makes them.
    prefix: tuple[str, ...] = ()


SANITIZERS = {
    "address": Sanitizer(
        flags="-fsanitize=address,undefined -fno-sanitize-recover=undefined",
        runtime="libasan.so",
        # Python frees little at exit, so leaks are no sign; torch loads libraries with symbols of one name.
        options={"ASAN_OPTIONS": "detect_leaks=0:detect_odr_violation=0", "UBSAN_OPTIONS": "print_stacktrace=1"},
        faults=(
            Fault(
                'extern "C" int fault(int n) { int* p = new int[4]; int r = p[n + 3]; delete[] p; return r; }',
                "AddressSanitizer: heap-buffer-overflow",
            ),
            Fault(
                'extern "C" int fault(int n) { int* p = new int[4]; delete[] p; return p[n]; }',
                "AddressSanitizer: heap-use-after-free",
            ),
            Fault(
                'extern "C" int fault(int n) { return 2147483647 + n; }',
                "runtime error: signed integer overflow",
            ),
        ),
    ),
    "thread": Sanitizer(
        flags="-fsanitize=thread",
        runtime="libtsan.so",
        options={"TSAN_OPTIONS": "halt_on_error=1:exitcode=66:ignore_noninstrumented_modules=1"},
        faults=(
            Fault(
                "#include <thread>\n"
                "static int shared = 0;\n"
                'extern "C" int fault(int n) {\n'
                "  std::thread other([n] { for (int i = 0; i < 100000; ++i) shared += n; });\n"
                "  for (int i = 0; i < 100000; ++i) shared += n;\n"
                "  other.join();\n"
                "  return shared;\n"
                "}",
                "ThreadSanitizer: data race",
            ),
        ),
        prefix=("setarch", "-R"),
    ),
}


def compiler(sanitizer: Sanitizer) -> str:
    """The value of CXX: a compiler that puts the sanitizer into what it compiles."""
    return f"g++ {sanitizer.flags} -g1"


def environment(sanitizer: Sanitizer) -> dict[str, str]:
    """The variables of a process that uses what was compiled so."""
    # The sanitizer's runtime must be the first library of the process, and Python was not linked to it.
    answer = subprocess.run(
        ["g++", f"-print-file-name={sanitizer.runtime}"], capture_output=True, text=True, check=True
    )
    preload = os.path.realpath(answer.stdout.strip())
    return {**os.environ, **sanitizer.options, "CXX": compiler(sanitizer), "LD_PRELOAD": preload}


def unreported(sanitizer: Sanitizer) -> list[str]:
    """The planted faults that the sanitizer says nothing of, each with what was printed instead."""
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        for number, fault in enumerate(sanitizer.faults):
            source, library = Path(folder, f"fault{number}.cpp"), Path(folder, f"fault{number}.so")
            source.write_text(fault.source + "\n", encoding="utf-8")
            # Without optimisation: a compiler may leave a fault out.
            command = [*compiler(sanitizer).split(), "-O0", "-fPIC", "-shared", str(source), "-o", str(library)]
            subprocess.run(command, check=True)
            call = f"import ctypes; ctypes.CDLL({str(library)!r}).fault(1)"
            ended = subprocess.run(
                [*sanitizer.prefix, sys.executable, "-c", call],
                check=False,
                env=environment(sanitizer),
                capture_output=True,
                text=True,
            )
            if ended.returncode == 0 or fault.report not in ended.stderr:
                missed.append(f"{fault.report}: ended with {ended.returncode} and said {ended.stderr.strip()!r}")
    return missed


def main() -> int:
    """Prove the sanitizer, then run the tests. The status is pytest's, or 1 if a planted fault was not reported."""
    parser = argparse.ArgumentParser(prog="python -m tests.sanitized", description=__doc__.partition("\n")[0])
    parser.add_argument("sanitizer", choices=SANITIZERS)
    parser.add_argument("tests", nargs="*", default=DEFAULT, help=f"what pytest runs; by default {DEFAULT[0]}")
    given = parser.parse_args()
    sanitizer = SANITIZERS[given.sanitizer]
    for tool in ("g++", *sanitizer.prefix[:1]):
        if shutil.which(tool) is None:
            print(f"{tool} is missing: install it", file=sys.stderr)
            return 1
    missed = unreported(sanitizer)
    for line in missed:
        print(f"a planted fault was not reported: {line}", file=sys.stderr)
    if missed:
        return 1
    print(f"all {len(sanitizer.faults)} planted faults were reported", flush=True)
    command = [*sanitizer.prefix, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *given.tests]
    return subprocess.run(command, check=False, cwd=ROOT, env=environment(sanitizer)).returncode


if __name__ == "__main__":
    sys.exit(main())
