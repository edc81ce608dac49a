"""The test files of what differs from a commit: `python -m changed main` prints them, for `make quick`.

A test file is chosen if it changed, or if it imports a module of anymps or a helper that changed: by the module's own
name, or by a name that a package's face takes from it. `make test` runs tests that use a module only through another,
and tests of whole programs.
"""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE, TESTS = ROOT / "src", ROOT / "tests"
NATIVE = SOURCE / "anymps" / "device" / "native"
OF_THE_CORE = ("test_native_units.py", "test_native_stub.py", "test_core_rules.py", "test_bindings.py", "test_views.py")
"""What a change of C++ is tried on: its own tests, the device's bindings, and one file of plain work."""
MOST = 24
"""Files that take a minute on two cores. What most tests need, such as `processes.py`, would choose nearly all."""


def changed_files(base: str) -> set[Path]:
    """Files that differ from where this branch left `base`: committed, not committed, and new."""
    start = _git("merge-base", base, "HEAD").strip()
    names = _git("diff", "--name-only", start) + _git("ls-files", "--others", "--exclude-standard")
    return {ROOT / name for name in names.splitlines()}


def _git(*words: str) -> str:
    answer = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if answer.returncode:
        sys.exit(f"git {' '.join(words)}: {answer.stderr.strip()}")
    return answer.stdout


def chosen(changed: set[Path]) -> list[Path]:
    """The test files to run: changed ones, then those that import what changed."""
    core = any(NATIVE in path.parents for path in changed)
    tests = [test for test in sorted(TESTS.rglob("test_*.py")) if "integration" not in test.parts]
    found = [test for test in tests if changed & imports(test) or (core and test.name in OF_THE_CORE)]
    return list(dict.fromkeys([*sorted(changed.intersection(tests)), *found]))


def imports(path: Path) -> frozenset[Path]:
    """The files of ours that define what a file imports."""
    homes = (_file_of(module) if name is None else _home(module, name) for module, name in _imports(path))
    return frozenset(home for home in homes if home is not None and home != path)


def _imports(path: Path) -> Iterator[tuple[str, str | None]]:
    """Module and name of each import in a file; no name for an import of the module itself."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.module, alias.name) for alias in node.names)


def _home(module: str, name: str) -> Path | None:
    """The file that defines what `from module import name` gives: a submodule, or where the package has it from."""
    below = _file_of(f"{module}.{name}")
    if below is not None:
        return below
    file = _file_of(module)
    if file is None or file.name != "__init__.py" or SOURCE not in file.parents:
        return file
    # Some faces load a name when it is asked for: what defines it says so itself.
    home = getattr(getattr(importlib.import_module(module), name, None), "__module__", module)
    return _file_of(home) or file


@cache
def _file_of(module: str) -> Path | None:
    parts = Path(*module.split("."))
    for root in (SOURCE, TESTS):
        for file in (root / parts.with_suffix(".py"), root / parts / "__init__.py"):
            if file.is_file():
                return file
    return None


def main(words: list[str]) -> None:
    """Print the chosen files for pytest; how many there are goes to standard error."""
    files = chosen(changed_files(words[0]))
    left = f"; the first {MOST} run, make test runs the rest" if len(files) > MOST else ""
    print(f"==> {len(files)} test files of what differs from {words[0]}{left}", file=sys.stderr)
    print(*(file.relative_to(ROOT) for file in files[:MOST]))


if __name__ == "__main__":
    main(sys.argv[1:])
