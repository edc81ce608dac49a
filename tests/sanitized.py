"""Run tests with native code that was compiled under a sanitizer; first, planted faults prove that it reports.

    python -m tests.sanitized address                      # AddressSanitizer and UBSan, over tests/device and METAL
    python -m tests.sanitized address --part 2/4           # a quarter of these files
    python -m tests.sanitized thread tests/capture/test_capture.py # ThreadSanitizer, over what is named

For files of tests/metal it is the runtime of Metal kernels that is compiled so (`sanitized_runtime.py`), for others the
native core. To compile that takes minutes, and is done once. Each file of tests is a process of its own, so that one
which ends early costs only its own tests; a line says how it went. It needs g++ with its sanitizers (apt install g++)
and, for threads, setarch (apt install util-linux). Python and torch are as they are: what goes wrong in their code
alone is not seen.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
METAL = tuple(
    f"tests/metal/test_metal_{name}.py"
    for name in ("threads", "calls", "groups", "loops", "places", "repeated", "tape", "vectors")
)
"""Files whose kernels run in this process, unchecked: the checker has names of a sanitizer's own functions."""
DEFAULT = ("tests/device", *METAL)
RUNTIME_FLAGS = "ANYMPS_TESTS_RUNTIME_FLAGS"  # as sanitized_runtime.py reads it
UNFOLLOWED = "ASan is ignoring requested __asan_handle_no_return"  # of a jump from a fiber's stack to its thread's
NO_TESTS = 5  # pytest's status where all were left out


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
    runtime_flags: str = ""  # of the runtime of Metal kernels
    # ThreadSanitizer of GCC 12 cannot live with addresses as random as Linux 6 makes them.
    prefix: tuple[str, ...] = ()


SANITIZERS = {
    "address": Sanitizer(
        # device/calls/alias.cpp reaches protected fields through a class that no tensor is of, which `vptr` reports.
        flags="-fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined",
        runtime="libasan.so",
        # Shaders call UBSan's functions too, in their checked form: no library of its may be there.
        runtime_flags="-fsanitize=address,undefined -fsanitize-undefined-trap-on-error -g1",
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
        # Fibers leave functions without returning from them, so calls cannot be followed.
        runtime_flags="-fsanitize=thread -g1 --param tsan-instrument-func-entry-exit=0",
        # A worker of a data loader is forked from a process with threads, and starts some of its own.
        # A fault of a Metal kernel leaves its handler by siglongjmp; what follows is taken for a part of the handler.
        options={
            "TSAN_OPTIONS": "halt_on_error=1:exitcode=66:die_after_fork=0:ignore_noninstrumented_modules=1:"
            "report_signal_unsafe=0"
        },
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


def environment(sanitizer: Sanitizer, core: bool = True) -> dict[str, str]:
    """The variables of a process that uses what was compiled so: the core, or the runtime of Metal kernels."""
    # The sanitizer's runtime must be the first library of the process, and Python was not linked to it. When it begins,
    # it looks for what throws C++ exceptions, and if there is none yet, the first exception ends the process.
    preload = " ".join(_library(name) for name in (sanitizer.runtime, "libstdc++.so"))
    tests = os.pathsep.join(filter(None, (str(ROOT / "tests"), os.environ.get("PYTHONPATH"))))
    # A process without a compiler takes any core of its sources: not one of these.
    cache = {"ANYMPS_CACHE_DIR": str(ROOT / "build" / f"cache-{sanitizer.runtime}")}
    compiled = {"CXX": compiler(sanitizer)} if core else {RUNTIME_FLAGS: sanitizer.runtime_flags, "PYTHONPATH": tests}
    # How GNU's OpenMP waits for its threads, ThreadSanitizer does not see: what is read before looks like a race.
    alone = {"OMP_NUM_THREADS": "1"} if sanitizer.runtime == "libtsan.so" else {}
    return {**os.environ, **sanitizer.options, **cache, **compiled, **alone, "LD_PRELOAD": preload}


def _library(name: str) -> str:
    answer = subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return os.path.realpath(answer.stdout.strip())


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


def quiet_environment(sanitizer: Sanitizer, folder: Path, core: bool) -> dict[str, str]:
    """The same for tests. Reports go to files `report.<process>` of the folder: pytest would lose what is printed."""
    variables = environment(sanitizer, core)
    for name in sanitizer.options:
        variables[name] += f":log_path={folder / 'report'}"
    return variables


def files_of(tests: Sequence[str], part: tuple[int, int]) -> list[str]:
    """What pytest runs, a process each: the files of folders, and what else is named; of these one part."""
    found = []
    for one in tests:
        path = ROOT / one
        found += [str(file.relative_to(ROOT)) for file in sorted(path.rglob("test_*.py"))] if path.is_dir() else [one]
    number, count = part
    return found[number - 1 :: count]


def run_file(sanitizer: Sanitizer, file: str) -> bool:
    """Runs the tests of a file, and prints how it went; what was reported and what failed is printed before."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        core = not is_metal(file)
        plugin = [] if core else ["-p", "sanitized_runtime"]
        command = [*sanitizer.prefix, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, file]
        ended = subprocess.run(
            command,
            check=False,
            cwd=ROOT,
            env=quiet_environment(sanitizer, Path(folder), core),
            capture_output=True,
            text=True,
        )
        written = [path.read_text(encoding="utf-8", errors="replace") for path in Path(folder).glob("report.*")]
        reports = [text for text in written if UNFOLLOWED not in text or "ERROR: " in text]
        seconds = time.monotonic() - started
    well = ended.returncode in (0, NO_TESTS) and not reports
    if not well:
        print("\n".join([*reports, ended.stdout.strip(), ended.stderr.strip()]))
    last = ended.stdout.strip().splitlines()[-1:] or ["pytest said nothing"]
    verdict = "well" if well else f"reports: {len(reports)}, status {ended.returncode}"
    print(f"{file}: {verdict}, {seconds:.0f} s ({last[0].strip('= ')})", flush=True)
    return well


def is_metal(file: str) -> bool:
    """Whether the tests are those of Metal kernels."""
    return file.startswith("tests/metal/")


def part_of(text: str) -> tuple[int, int]:
    """2/4 as two numbers."""
    number, _, count = text.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(f"{text!r} is no part such as 2/4")
    return int(number), int(count)


def main() -> int:
    """Prove the sanitizer, then run the tests. The status is 1 if a planted fault was not reported or a file failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.sanitized", description=__doc__.partition("\n")[0])
    parser.add_argument("sanitizer", choices=SANITIZERS)
    parser.add_argument("tests", nargs="*", default=DEFAULT, help="what pytest runs; by default tests/device and METAL")
    parser.add_argument(
        "--part", type=part_of, default=(1, 1), metavar="K/N", help="only each N-th file, from the K-th on"
    )
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
    files = files_of(given.tests, given.part)
    building = [*sanitizer.prefix, sys.executable, "-c", "import anymps; anymps.enable(quiet=True)"]
    if not all(map(is_metal, files)) and (
        subprocess.run(building, check=False, cwd=ROOT, env=environment(sanitizer)).returncode != 0
    ):
        print("the core cannot be compiled or loaded under the sanitizer", file=sys.stderr)
        return 1
    failed = [file for file in files if not run_file(sanitizer, file)]
    print(f"{len(files) - len(failed)} of {len(files)} files well" + "".join(f"\n  {file}" for file in failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
