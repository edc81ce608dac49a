"""The table of floors in docs/architecture.md holds: who may import whom, and who may import torch."""

from __future__ import annotations

import ast
import fnmatch
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import anymps
import anymps.rules
from processes import run_python

SOURCE = Path(anymps.__file__).parent
TABLE = Path(__file__).parents[1] / "docs" / "architecture.md"
DRAWING = TABLE.parent / "images" / "packages.svg"
FACES = ("__init__", "__main__")  # of the whole: they may import everything


@dataclass(frozen=True)
class Floor:
    """One row of the table."""

    number: int
    packages: tuple[str, ...]
    may_import: str
    torch: str


@dataclass(frozen=True)
class Import:
    """One import statement: what is imported, as a dotted name, and where."""

    name: str
    line: int
    at_top: bool
    for_types: bool


def read_table() -> list[Floor]:
    """Read the rows of the table."""
    rows = []
    for line in TABLE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[0].isdigit():
            rows.append(Floor(int(cells[0]), tuple(re.findall(r"`(\w+)`", cells[1])), cells[2], cells[3]))
    return rows


FLOORS = read_table()
FLOOR_OF = {package: floor for floor in FLOORS for package in floor.packages}


def allowed(package: str) -> set[str]:
    """The packages that a package may import, itself included."""
    floor = FLOOR_OF[package]
    names = {package}
    for part in (part.strip() for part in floor.may_import.split(",")):
        if part == "nothing":
            continue
        if part == "all":
            return {*FLOOR_OF, ""}  # "": the whole face
        if match := re.fullmatch(r"(\d+)(?: to (\d+))?", part):
            numbers = range(int(match[1]), int(match[2] or match[1]) + 1)
            names.update(name for name, other in FLOOR_OF.items() if other.number in numbers)
        elif match := re.fullmatch(r"`(\w+)`(?:'s data model)?", part):
            names.add(match[1])
        else:
            raise AssertionError(f"docs/architecture.md: {part!r} cannot be read")
    return names


@cache
def modules() -> tuple[Path, ...]:
    """All modules of the package."""
    return tuple(sorted(SOURCE.rglob("*.py")))


def package_of(path: Path) -> str:
    """The package, or the module beside the packages, that a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[Import]:
    """The imports of a module that run, at its top or in a function."""
    return (item for item in all_imports(path) if not item.for_types)


@cache
def text_of(path: Path) -> str:
    """A module's text, read once for all tests."""
    return path.read_text(encoding="utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    """A module's syntax tree, read once for all tests."""
    return ast.parse(text_of(path))


@cache
def all_imports(path: Path) -> tuple[Import, ...]:
    """All imports of a module, relative ones resolved."""
    parents = ["anymps", *path.relative_to(SOURCE).parent.parts]

    def walk(node: ast.AST, at_top: bool, for_types: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(alias.name, child.lineno, at_top, for_types)
            elif isinstance(child, ast.ImportFrom):
                base = ".".join(parents[: len(parents) + 1 - child.level]) if child.level else ""
                module = ".".join(filter(None, (base, child.module)))
                for alias in child.names:
                    yield Import(f"{module}.{alias.name}", child.lineno, at_top, for_types)
            elif isinstance(child, ast.If) and ast.unparse(child.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
                yield from walk(ast.Module(child.body, []), at_top, True)
                yield from walk(ast.Module(child.orelse, []), at_top, for_types)
                continue
            inner = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            yield from walk(child, at_top and not inner, for_types)

    return tuple(walk(tree_of(path), True, False))


def dotted(path: Path) -> str:
    """The name that a module is imported by; a package's is that of its face."""
    parts = ("anymps", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def identity(path: Path) -> str:
    """A short name for a test's title."""
    return path.relative_to(SOURCE).as_posix()


PARTS = sorted({package_of(path) for path in modules()})
"""The packages and the modules beside them: a test for each, as there are hundreds of modules."""


def of_part(part: str) -> list[Path]:
    """The modules of a package, or the one module that is no package."""
    return [path for path in modules() if package_of(path) == part]


def test_the_table_is_complete() -> None:
    """Each package and each module beside the packages stands in the table, and nothing else does."""
    present = {package_of(path) for path in modules()} - set(FACES)
    assert present == set(FLOOR_OF)


def test_the_drawing_shows_the_table() -> None:
    """The drawing beside the table has each package on its floor, yellow where it needs torch, with its folders."""
    floor, yellow, name, drawn = 0, False, "", {}
    for style, words in re.findall(r'class="(\w)"[^>]*>([^<]*)', DRAWING.read_text(encoding="utf-8")):
        if style == "n" and words.startswith("floor "):
            floor = int(words.removeprefix("floor "))
        elif style in "br":
            yellow = style == "r"
        elif style in "tm":
            name = words
            drawn[name] = (floor, yellow, [])
        elif style == "s":
            drawn[name][2].extend(part.rstrip("/") for part in words.split(" · "))
    for package, row in FLOOR_OF.items():
        folders = [
            path for path in sorted((SOURCE / package).glob("*/")) if {*path.glob("*.py"), *path.glob("*/*.cpp")}
        ]
        assert drawn.pop(package) == (row.number, row.torch.startswith("yes"), [path.name for path in folders])
    assert drawn == {}


@pytest.mark.parametrize("package", sorted(set(PARTS) - set(FACES)))
def test_no_import_upward(package: str) -> None:
    """A module imports only what its floor may, for its types, too."""
    may = allowed(package)
    wrong = []
    for path in of_part(package):
        for item in all_imports(path):
            top, _, rest = item.name.partition(".")
            # `import anymps` and `from anymps import x` reach everything.
            wanted = rest.partition(".")[0]
            if top == "anymps" and wanted not in may:
                wrong.append(f"{path}:{item.line}: {package} may not import {wanted or 'the whole face'}")
    assert wrong == []


@pytest.mark.parametrize("package", PARTS)
def test_torch_is_imported_where_it_may_be(package: str) -> None:
    """torch is imported by those packages, files and functions that the table names."""
    rule = "only inside functions" if package in FACES else FLOOR_OF[package].torch
    lines = [
        (path, item) for path in of_part(package) for item in imports(path) if item.name.partition(".")[0] == "torch"
    ]
    if rule.startswith("only in `"):
        places = re.findall(r"`([^`]+/[^`]+)`", rule)
        lines = [line for line in lines if not any(fnmatch.fnmatch(identity(line[0]), place) for place in places)]
    elif rule.startswith("only inside functions"):
        lines = [line for line in lines if line[1].at_top]
    elif not rule.startswith("no"):
        assert rule == "yes"
        lines = []
    assert [f"{path}:{item.line}: {item.name}" for path, item in lines] == []


@pytest.mark.parametrize("package", PARTS)
def test_no_private_doors(package: str) -> None:
    """What is private is imported only within its own package, and within packages inside of that."""
    wrong = []
    for path in of_part(package):
        here = [*dotted(path.parent / "__init__.py").split("."), ""]
        for item in all_imports(path):
            parts = item.name.split(".")
            private = next((i for i, part in enumerate(parts) if re.match(r"_(?!_)", part)), None)
            if parts[0] == "anymps" and private is not None and here[:private] != parts[:private]:
                wrong.append(f"{path}:{item.line}: {item.name} is private to {'.'.join(parts[:private])}")
    assert wrong == []


def test_reports_read_no_recording() -> None:
    """What a report tells of a run is in its `Story`, and a fact of a run is a field: nobody asks for it by a key."""
    assert [identity(path) for path in of_part("report") if "Recording" in imported_names(path)] == []
    asked = re.compile(r"\brecording\.meta\b(?:\.get\(|\[)")
    assert [identity(path) for path in modules() if package_of(path) != "record" and asked.search(text_of(path))] == []


def test_one_package_reads_the_users_python() -> None:
    """What others ask of a program's source, they ask `source`."""
    reads = re.compile(r"\bast\.parse\(|\blinecache\.get|\btokenize\.generate_tokens|\bsymtable\b")
    reading = [identity(path) for path in modules() if package_of(path) != "source" and reads.search(text_of(path))]
    assert reading == []


def test_rules_are_on_one_page() -> None:
    """No file of rules imports another one: what several need lies in the modules that they share."""
    rules = SOURCE / "findings" / "rules"
    files = [path for path in modules() if path.parent == rules and path.name != "__init__.py"]
    named = [(path, item) for path in files for item in all_imports(path) if re.search(r"\b_mps\d", item.name)]
    assert [f"{identity(path)}:{item.line}: {item.name}" for path, item in named] == []


def test_no_circles() -> None:
    """No module leads back to itself by its imports, at the top or in functions: a late import hides no circle."""
    names = {dotted(path): path for path in modules()}
    graph: dict[str, set[str]] = {}
    for name, path in names.items():
        graph[name] = set()
        for item in imports(path):
            parts = item.name.split(".")
            # The longest part of `a.b.name` that is a module; the rest is a name in it.
            known = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
            graph[name].update(list(filter(names.__contains__, known))[:1])
        if "__path__" in text_of(path):  # a face that takes in whatever lies beside it
            graph[name].update(dotted(other) for other in path.parent.glob("_*.py") if other != path)
    TopologicalSorter(graph).prepare()  # a CycleError names the first circle


def test_reading_needs_no_torch() -> None:
    """Opening, judging and showing a recording, and the rules, load no torch, in a real process."""
    packages = sorted(name for name, floor in FLOOR_OF.items() if not floor.torch.startswith("yes"))
    code = f"import sys\nimport {', '.join(f'anymps.{name}' for name in packages)}\nprint('torch' in sys.modules)\n"
    assert run_python(code).lines == ["False"]


@pytest.mark.parametrize("package", PARTS)
def test_modules_say_what_they_are_for(package: str) -> None:
    """A module begins with a docstring whose first line is a sentence."""
    first = {path: (ast.get_docstring(tree_of(path)) or "").partition("\n")[0] for path in of_part(package)}
    assert [f"{path}: {line!r}" for path, line in first.items() if not re.search(r"[.:!?]$", line)] == []


@pytest.mark.parametrize("package", PARTS)
def test_modules_are_private(package: str) -> None:
    """Inside of a package every module but its face has a leading underscore."""
    assert [path for path in of_part(package) if path.parent != SOURCE and not path.name.startswith("_")] == []


def bound_names(path: Path) -> tuple[set[str], list[str] | None]:
    """The public names that a module defines or imports from anymps, and its `__all__`, if it has one."""
    bound: set[str] = set()
    exported = None
    nodes = tree_of(path).body
    # The whole face loads its names when they are asked for, and imports them for type checkers only.
    lazy = [inner for node in nodes if isinstance(node, ast.If) for inner in node.body]
    for node in [*nodes, *lazy]:
        if isinstance(node, ast.ImportFrom) and node.module not in ("__future__", "anymps._lazy"):
            # Names from the standard library and from other projects are tools, not exports.
            if node.level or (node.module or "").partition(".")[0] == "anymps":
                bound.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in (target.id for target in targets if isinstance(target, ast.Name)):
                if name == "__all__" and node.value is not None:
                    exported = ast.literal_eval(node.value)
                else:
                    bound.add(name)
    return {name for name in bound if not name.startswith("_") or name == "__version__"}, exported


PUBLIC = ("", "integrations", "record")
"""The packages that programs of others may import."""


@pytest.mark.parametrize("package", PUBLIC)
def test_public_faces_export_what_they_say(package: str) -> None:
    """`__all__` of a public package holds exactly the public names that its face binds, each once."""
    bound, exported = bound_names(SOURCE / package / "__init__.py")
    assert exported is not None
    assert sorted(exported) == sorted(set(exported))
    assert set(exported) == bound


def test_only_public_faces_have_a_list() -> None:
    """What a private face imports is what it gives; a list would say each name again."""
    listed = {identity(path.parent) for path in modules() if bound_names(path)[1] is not None}
    assert listed == {package or "." for package in PUBLIC}


@cache
def imported_names(path: Path) -> set[str]:
    """The names that a module imports, without those that it gives to others by saying `as` and the same name."""
    nodes = (node for node in ast.walk(tree_of(path)) if isinstance(node, ast.ImportFrom))
    return {alias.name for node in nodes for alias in node.names if alias.asname is None}


@pytest.mark.parametrize("package", PARTS)
def test_names_come_from_the_module_that_defines_them(package: str) -> None:
    """mypy lets a face hand on what it imports, and so any module: this asks that only faces do."""
    wrong = []
    for path in of_part(package):
        for item in all_imports(path):
            module, _, name = item.name.rpartition(".")
            source = SOURCE.joinpath(*module.split(".")[1:]).with_suffix(".py")
            if module.startswith("anymps.") and source.is_file() and name in imported_names(source):
                wrong.append(f"{path}:{item.line}: {source} only imports {name}")
    assert wrong == []


def test_the_face_of_the_rules_is_small() -> None:
    """Fewer than 60 names: the backend's words and its faults have faces of their own."""
    assert len(bound_names(SOURCE / "rules" / "__init__.py")[0]) < 60


def test_integration_tests_lie_in_their_folder() -> None:
    """`make unit` leaves the folder out and `make integration` runs it; the marks of its files say the same."""
    tests, mark = Path(__file__).parent, "pytest.mark." + "integration"
    marked = {path for path in tests.rglob("test_*.py") if mark in path.read_text(encoding="utf-8")}
    assert marked == set((tests / "integration").glob("test_*.py"))


def test_long_files_are_there() -> None:
    """A file that was renamed is no longer listed; pytest-xdist keeps the order, as make asks it to."""
    tests = Path(__file__).parent
    listed = [line for line in (tests / "long_files.txt").read_text("utf-8").splitlines() if not line.startswith("#")]
    assert [file for file in listed if not (tests.parent / file).is_file()] == []
    assert "--no-loadscope-reorder" in (tests.parent / "Makefile").read_text("utf-8")
