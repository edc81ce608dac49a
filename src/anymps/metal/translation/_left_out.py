"""Leaves out parts of a source: functions of other stages, missing features, and code that needs them.

The kernels that are left can be used; one that is left out says why.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from anymps.metal._shim import SHIM
from anymps.metal.translation._heads import parameters_at
from anymps.metal.translation._parameters import Unsupported
from anymps.metal.translation._statements import ends_type
from anymps.metal.translation._structure import Declaration, Structure
from anymps.metal.translation._tokens import Token
from anymps.metal.translation._unbound_resources import images

# The functions beneath Metal's headers that exist here, because programs that add to `metal` call them.
_BUILTINS = frozenset(re.findall(r"\b__metal_\w+", (SHIM / "msl" / "builtins.h").read_text(encoding="utf-8")))
_DECLINED = (
    (
        re.compile(
            r"visible_function_table|intersection_function_table|intersector|(?:instance_|primitive_)?acceleration_structure"
        ),
        "ray tracing",
    ),
    (re.compile(r"imageblock|threadgroup_imageblock"), "image blocks"),
    (re.compile(r"tensor_ops|mpp|tensor_handle|tensor_inline|cooperative_tensor"), "Metal 4 tensor operations"),
    (
        re.compile(rf"(?!(?:{'|'.join(sorted(_BUILTINS))})$)__metal_\w+|__asm|simdgroup_async_copy"),
        "intrinsics inside of Apple's compiler",
    ),
    (re.compile(r"discard_fragment|dfd[xy]|fwidth"), "functions of fragment shaders"),
    (re.compile(r"mesh_grid_properties|object_data"), "mesh shaders"),
)
_STAGES = frozenset({"vertex", "fragment", "mesh", "object"})


@dataclass
class LeftOut:
    """The first and last tokens of what is left out, and why a kernel is, by the `id` of its function."""

    spans: list[tuple[int, int]] = field(default_factory=list)
    kernels: dict[int, Unsupported] = field(default_factory=dict)
    functions: set[int] = field(default_factory=set)


def left_out(code: list[Token], structure: Structure) -> LeftOut:
    """What must be left out of a source. Raises Unsupported where no kernel is left, or outside of declarations."""
    declared = structure.declarations
    missing = list(_missing(code))
    holders = _holders(code, declared) if missing else {}
    reasons: dict[int, Unsupported | None] = {
        number: None for number, one in enumerate(declared) if _STAGES & _stage(code, one)
    }
    for index, why in missing:
        if index not in holders:
            raise why
        reasons.setdefault(holders[index], why)
    if missing:
        _spread(code, declared, holders, reasons)
    result = LeftOut()
    for number, reason in reasons.items():
        one = declared[number]
        result.spans.append((one.first, one.last))
        for inner in declared:
            if inner.function is not None and one.first <= inner.first and inner.last <= one.last:
                result.functions.add(id(inner.function))
                if inner.function.kernel and reason is not None:
                    result.kernels[id(inner.function)] = reason
    if missing and not any(one.kernel and id(one) not in result.functions for one in structure.functions):
        raise min((why for _, why in missing), key=lambda why: why.offset)
    return result


def _missing(code: list[Token]) -> Iterator[tuple[int, Unsupported]]:
    """The features that are not there, by the place of what names them."""
    yield from images(code)
    for index, token in enumerate(code):
        if token.kind == "name":
            for pattern, feature in _DECLINED:
                if pattern.fullmatch(token.text):
                    yield index, Unsupported(feature, token.start)


def _holders(code: list[Token], declared: list[Declaration]) -> dict[int, int]:
    """For tokens within a declaration, the innermost one that they stand in."""
    found: dict[int, int] = {}
    for number in sorted(range(len(declared)), key=lambda number: declared[number].first - declared[number].last):
        one = declared[number]
        found.update(dict.fromkeys(range(one.first, min(one.last + 1, len(code))), number))
    return found


def _stage(code: list[Token], one: Declaration) -> set[str]:
    """The words before the name and the parameters of a function; of `[[vertex]]` what is in the brackets."""
    tokens = code[one.first : one.last + 1]
    return {token.text for token in tokens[: max(parameters_at(tokens) - 1, 0)]}


def _spread(
    code: list[Token], declared: list[Declaration], holders: Mapping[int, int], reasons: dict[int, Unsupported | None]
) -> None:
    """What uses something that is left out is left out, too, if nothing else has that name."""
    used: dict[str, set[int]] = {}
    own: set[tuple[str, int]] = set()  # names that a declaration gives to something within it
    for index, number in holders.items():
        token = code[index]
        if token.kind == "name" and code[index - 1].text not in (".", "->"):
            used.setdefault(token.text, set()).add(number)
            if index > declared[number].first and ends_type(code[index - 1]):
                own.add((token.text, number))
    by_name: dict[str, list[int]] = {}
    for number, one in enumerate(declared):
        by_name.setdefault(one.name, []).append(number)
    todo = list(reasons)
    while todo:
        gone = todo.pop()
        name, why = declared[gone].name, reasons[gone]
        if why is None or not name or any(number not in reasons for number in by_name[name]):
            continue
        for user in used.get(name, ()):
            if user not in reasons and (name, user) not in own:
                reasons[user] = why
                todo.append(user)
