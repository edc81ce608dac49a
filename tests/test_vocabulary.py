"""One vocabulary: the native core's words are written from Python's, and conditions are known by their names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import torch

import anymps
from anymps import _vocabulary as vocabulary
from anymps.device import enforce_hazards, known_hazards, native
from anymps.device._build import SOURCE_DIRECTORY
from anymps.device._generated import generated_headers
from anymps.rules import ERROR_CLASSES, Trait, When
from anymps.rules.faults import all_hazards, hazard_table

HEADER = generated_headers("2.13.0")["anymps/vocabulary.h"]
ENUM = re.compile(r"^enum (?:class )?(\w+) : \w+ \{ (.*) \};$", re.MULTILINE)
NATIVE = {path.name: path.read_text(encoding="utf-8") for path in sorted(SOURCE_DIRECTORY.rglob("*.[ch]*"))}


def plain(members: dict[str, int]) -> dict[str, int]:
    """Names in lower case without underscores."""
    return {name.replace("_", "").lower(): value for name, value in members.items()}


def written(name: str) -> dict[str, int]:
    """The members of a C++ enum of the generated header, in lower case and without the k of constants."""
    members: dict[str, int] = {}
    for part in dict(ENUM.findall(HEADER))[name].split(", "):
        member, _, value = part.partition(" = ")
        members[re.sub(r"^k(?=[A-Z])", "", member).lower()] = int(value) if value else len(members)
    return members


@pytest.mark.parametrize("name", ["Direction", "Fate", "Phase", "Role", "RoundKind", "Wait"])
def test_the_native_core_has_the_recording_s_numbers(name: str) -> None:
    """Fates, waits, phases and the like have one name and one number in Python and C++."""
    kind = getattr(vocabulary, name)
    assert written(name) == plain({member.name: int(member) for member in kind})


def test_bits_and_words_are_the_same_too() -> None:
    """Traits of operators, flags of entries, kinds of refusal and classes of errors."""
    assert written("Trait") == plain({name: int(Trait[name]) for name in Trait.__members__})
    flags = vocabulary.Flag
    assert written("EntryFlag") == plain({name: int(flags[name]) for name in flags.__members__})
    assert list(written("Refusal")) == [kind.name.lower() for kind in vocabulary.RefusalKind]
    assert list(written("ErrorClass")) == [name.removesuffix("Error").lower() for name in ERROR_CLASSES]
    for kind in vocabulary.RefusalKind:
        assert f'"{kind.value}"' in HEADER


def test_no_word_is_defined_twice() -> None:
    """Neither a source of the native core nor another module of the package has an enum of a shared name."""
    shared = {*dict(ENUM.findall(HEADER)), "Flag"}
    for file, text in NATIVE.items():
        assert shared.isdisjoint(re.findall(r"\benum (?:class )?(\w+)\b", text)), file
    classes: dict[str, list[str]] = {}
    package = Path(anymps.__file__).parent
    for path in package.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name in shared:
                classes.setdefault(node.name, []).append(path.relative_to(package).as_posix())
    assert {name: len(files) for name, files in classes.items()} == dict.fromkeys(classes, 1), classes


def test_every_condition_of_a_fault_is_known_by_its_name(virtual_device: torch.device) -> None:
    """The native core takes each row, and a name that it does not know ends the set-up in one line."""
    _, _, *rest = hazard_table(all_hazards())[0]
    before = known_hazards()
    with pytest.raises(RuntimeError) as caught:
        native().set_hazards((("MPS999", "no_such_check", *rest),))
    text = str(caught.value).splitlines()[0]
    assert text == 'anymps: the native core has no condition "no_such_check" for MPS999 (rules/hazard_checks.cpp)'
    native().set_hazards(hazard_table(all_hazards()))
    enforce_hazards(before)


def test_every_wait_condition_is_known_by_its_name() -> None:
    """The native core has each condition of `When`, and no other."""
    table = NATIVE["wait_conditions.cpp"].partition("conditions = {")[2].partition("};")[0]
    assert sorted(re.findall(r'^ +\{"(\w+)", ', table, re.MULTILINE)) == sorted(when.value for when in When)
