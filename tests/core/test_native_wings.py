"""The native core's wings: docs/architecture/device.md orders them, and no include runs up or in a circle."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from anymps.device._build import SOURCE_DIRECTORY
from anymps.device._enable import SUBSTRATES

TABLE = Path(__file__).parents[2] / "docs" / "architecture" / "device.md"
_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
_REACHES = re.compile(r"->(?:ml_meth|vectorcall)\b|\bmprotect\(")
_TORCH = re.compile(r"^#include <(?:torch|ATen|c10|Python)[./]", re.MULTILINE)


def read_order() -> list[str]:
    """The wings from the lowest to the highest, as the table of them has it."""
    _, _, table = TABLE.read_text(encoding="utf-8").partition("| wing | what it is | needs |\n")
    return re.findall(r"^\| `(\w+)` \|", table.partition("\n\n")[0], re.MULTILINE)


WINGS = read_order()


def read_device_order() -> list[str]:
    """The folders of the wing `device` from the lowest to the highest, as the sentence below the table's has it."""
    text = " ".join(TABLE.read_text(encoding="utf-8").split())
    _, _, order = text.partition("Folders of `device` are floors too, from the lowest: ")
    return re.findall(r"`(\w+)`", order.partition(".")[0])


DEVICE = read_device_order()


@cache
def files() -> list[Path]:
    """All sources and headers, relative to the folder of the native core."""
    found = (path for path in SOURCE_DIRECTORY.rglob("*") if path.suffix in (".cpp", ".h"))
    return sorted(path.relative_to(SOURCE_DIRECTORY) for path in found)


@cache
def read(path: Path) -> str:
    return (SOURCE_DIRECTORY / path).read_text(encoding="utf-8")


def includes(path: Path) -> list[Path]:
    """What a file includes of the native core."""
    return [Path(name) for name in _INCLUDE.findall(read(path))]


def unit(path: Path) -> str:
    """A header and its source are one thing: `recorder/tape`."""
    return path.with_suffix("").as_posix()


def of_wing(wing: str) -> list[Path]:
    """The files of a wing."""
    return [path for path in files() if path.parts[0] == wing]


def circles(graph: dict[str, set[str]]) -> Iterator[list[str]]:
    """The first circle that each unit is found on, by a walk in depth."""
    done: set[str] = set()

    def walk(name: str, way: list[str]) -> Iterator[list[str]]:
        if name in way:
            yield [*way[way.index(name) :], name]
        elif name not in done:
            for other in sorted(graph.get(name, ())):
                yield from walk(other, [*way, name])
            done.add(name)

    for name in sorted(graph):
        yield from walk(name, [])


def test_the_table_is_complete() -> None:
    """Each wing stands in the table, and nothing else does; no source lies beside the wings."""
    assert sorted(WINGS) == sorted({path.parts[0] for path in files()})


@pytest.mark.parametrize("wing", WINGS)
def test_no_include_upward(wing: str) -> None:
    """A file includes files of its own wing, and of lower ones the face; each by its place below the native core."""
    wrong = []
    for path, other in ((file, included) for file in of_wing(wing) for included in includes(file)):
        lower = other.parts[0]
        if not (SOURCE_DIRECTORY / other).is_file():
            wrong.append(f"{path}: {other} is not below the native core")
        elif WINGS.index(lower) > WINGS.index(wing):
            wrong.append(f"{path} may not include {other}")
        elif lower != wing and other != Path(lower, f"{lower}.h"):
            wrong.append(f"{path}: {lower}/{lower}.h is the face for {other}")
    assert wrong == []


def test_no_include_upward_inside_the_device() -> None:
    """Its folders are floors: memory knows nothing of calls, and calls nothing of the backend."""
    places = [path for path in of_wing("device") if len(path.parts) == 3]
    assert {path.parts[1] for path in places} == set(DEVICE)
    wrong = [
        f"{path} may not include {other}"
        for path in places
        for other in includes(path)
        if other.parts[0] == "device" and DEVICE.index(other.parts[1]) > DEVICE.index(path.parts[1])
    ]
    assert wrong == []


def test_only_patches_reach_into_objects_of_others() -> None:
    """What torch or Python made is changed in one place."""
    assert [str(path) for path in files() if path.parts[0] != "patches" and _REACHES.search(read(path))] == []


def test_no_circle() -> None:
    """No header or source needs itself by way of others."""
    graph: dict[str, set[str]] = {}
    for path in files():
        graph.setdefault(unit(path), set()).update(unit(other) for other in includes(path) if unit(other) != unit(path))
    assert [" -> ".join(circle) for circle in circles(graph)] == []


def test_the_observer_needs_no_device() -> None:
    """On a Mac it records a device that is not ours: nothing that it needs includes the device or its kernels."""
    needed = (
        "rules/",
        "recorder/",
        "feeds/observe",
        "bindings/rule",
        "bindings/tape",
        "bindings/observer",
    )
    wanted = [path for path in files() if path.as_posix().startswith(needed)]
    assert {Path("feeds/observer.cpp"), Path("recorder/tape/tape.cpp"), Path("rules/rule_list.cpp")} <= set(wanted)
    reached: set[Path] = set()
    while wanted:
        path = wanted.pop()
        if path not in reached:
            reached.add(path)
            wanted += includes(path)
    assert sorted(path.as_posix() for path in reached if path.parts[0] in ("device", "kernels")) == []


@pytest.mark.parametrize("wing", ["locks", "model"])
def test_the_lowest_wings_need_no_torch(wing: str) -> None:
    """They are compiled alone by their own tests."""
    assert [(path, include) for path in of_wing(wing) for include in _TORCH.findall(read(path))] == []


@pytest.mark.parametrize("wing", WINGS)
def test_files_say_what_they_are_for(wing: str) -> None:
    """A file begins with a comment whose first sentence says so."""
    first = {path.as_posix(): read(path).partition("\n")[0] for path in of_wing(wing)}
    assert {path: line for path, line in first.items() if not line.startswith("// ")} == {}


def substrates() -> list[Path]:
    """The files that implement a substrate."""
    return [path for path in files() if path.parts[0] == "device" and path.stem.endswith("_substrate")]


def test_substrates_are_known_by_their_names() -> None:
    """What `anymps.enable(substrate=...)` takes is what enters itself in the native core, a file each."""
    entries = [
        (path.stem.removesuffix("_substrate"), name)
        for path in substrates()
        for name in re.findall(r'^const SubstrateEntry \w+\("(\w+)"', read(path), re.MULTILINE)
    ]
    assert [name for _, name in entries] == sorted(SUBSTRATES)
    assert all(file == name for file, name in entries)


@pytest.mark.parametrize("wing", WINGS)
def test_nobody_asks_which_substrate_it_is(wing: str) -> None:
    """Only a substrate's own files name its class or include its header: the others call the interface."""
    for path in (path for path in of_wing(wing) if path not in substrates()):
        assert [name for name in includes(path) if name.stem.endswith("_substrate")] == [], path
        assert re.findall(r"\b(?:Host|Shape)Substrate\b|shapes_only", read(path)) == [], path
