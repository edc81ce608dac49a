"""The headers that are written for a build: what the release does, as constants that the native core is compiled for.

The core includes them as `<anymps/release.h>`. They lie in the folder of the build and are part of its key.
"""

from __future__ import annotations

__all__ = ["generated_headers"]

from dataclasses import fields
from enum import Enum

from anymps.rules import TorchVersion, VersionRules, version_rules

# Read by Python alone: names of operators, and the version itself.
_NOT_FOR_CPP = (TorchVersion, tuple)


def generated_headers(version: str | TorchVersion) -> dict[str, str]:
    """The text of each header by its path below the include directory, for a release of torch.

    Raises UnsupportedTorchError outside the supported range.
    """
    return {"anymps/release.h": _release(version_rules(version))}


def _release(rules: VersionRules) -> str:
    lines = [
        f"// What torch {rules.version.major}.{rules.version.minor} does on mps: anymps/rules/_versions.py, VersionRules.",
        "#pragma once",
        "",
        "namespace anymps::release {",
        "",
    ]
    for field in fields(rules):
        value = getattr(rules, field.name)
        if not isinstance(value, _NOT_FOR_CPP):
            lines += _constant(field.name, value)
    return "\n".join([*lines, "", "}  // namespace anymps::release", ""])


def _constant(name: str, value: object) -> list[str]:
    if isinstance(value, bool):
        return [f"constexpr bool {name} = {str(value).lower()};"]
    if isinstance(value, Enum):
        kind = type(value)
        members = ", ".join(camel_case(member.name) for member in kind)
        return [
            f"enum class {kind.__name__} {{ {members} }};",
            f"constexpr {kind.__name__} {name} = {kind.__name__}::{camel_case(value.name)};",
        ]
    if isinstance(value, int):
        return [f"constexpr int {name} = {value};"]
    raise TypeError(f"VersionRules.{name} has no C++ type: {value!r}")


def camel_case(name: str) -> str:
    """`COPY_TO_MPS` as `CopyToMps`."""
    return "".join(part.capitalize() for part in name.split("_"))
