"""The native core is compiled for what `VersionRules` says of the installed torch, and asks for nothing else."""

from __future__ import annotations

import re
from dataclasses import fields
from enum import Enum
from pathlib import Path

import pytest

from anymps.device import _build
from anymps.device._generated import camel_case, generated_headers
from anymps.device._toolchain import find_torch
from anymps.rules import VersionRules, version_rules

PACKAGE = Path(_build.__file__).parents[1]
NATIVE = {path: path.read_text(encoding="utf-8") for path in sorted(_build.SOURCE_DIRECTORY.rglob("*.[ch]*"))}
RELEASES = ("2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")
# Names and not behaviours.
NOT_FOR_CPP = {"version", "python_kernels", "always_fallback"}
# Where torch's own C++ differs between releases: how many lines of a file ask for its version.
API_DIFFERS: dict[str, int] = {}


@pytest.mark.parametrize("release", RELEASES)
def test_the_header_says_what_the_rules_say(release: str) -> None:
    """Each field of a release is a constant of its name and value."""
    text = generated_headers(release)["anymps/release.h"]
    found = dict(re.findall(r"^constexpr \w+ (\w+) = (.+);$", text, re.MULTILINE))
    expected = {}
    for field in fields(VersionRules):
        value = getattr(version_rules(release), field.name)
        if field.name not in NOT_FOR_CPP:
            expected[field.name] = (
                f"{type(value).__name__}::{camel_case(value.name)}" if isinstance(value, Enum) else str(value).lower()
            )
    assert found == expected


def test_the_native_core_asks_the_rules_for_its_release() -> None:
    """No source decides by torch's version number: what differs has a name and a source in `VersionRules`."""
    asking = {path.name: len(re.findall(r"TORCH_VERSION_\w+", text)) for path, text in NATIVE.items()}
    assert {name: count for name, count in asking.items() if count} == API_DIFFERS


def test_every_field_is_asked_for() -> None:
    """A field that neither the native core nor the Python side reads would be a claim that nothing holds to."""
    named = {name for text in NATIVE.values() for name in re.findall(r"\brelease::(\w+)", text)}
    python = [path for path in PACKAGE.rglob("*.py") if path.name != "_versions.py"]
    named |= {name for path in python for name in re.findall(r"\.(\w+)\b", path.read_text(encoding="utf-8"))}
    assert {field.name for field in fields(VersionRules)} - named == set()


def test_another_answer_of_the_rules_is_another_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """The headers are part of the build's key, so that no core of other rules is taken for it."""
    torch = find_torch()
    before = _build._key(torch, None)
    headers = {name: f"{text}//" for name, text in generated_headers(torch.version).items()}
    monkeypatch.setattr(_build, "generated_headers", lambda version: headers)
    assert _build._key(torch, None) != before
