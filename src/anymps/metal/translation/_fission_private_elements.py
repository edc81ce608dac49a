"""Elements of threadgroup memory that each thread has for itself in a piece, held in a variable; indices as `int`.

Inductor's sums of squares go through such an element in a loop (`tmp_acc_0[r0_index * 1]`). Memory keeps the threads
out of registers, a variable does not.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from anymps.metal.translation._fission_steps import Item, Once, Piece, Step
from anymps.metal.translation._tokens import Token

_OTHERS = ("struct anymps_shared_", "auto anymps_a")  # the declaration; arguments of what threads do together
_SMALL = 1 << 20  # times the highest index in a group, 1023, it is an `int`
_TYPES = r"(?:auto|unsigned|int|uint|short|ushort|long|ulong|size_t|uint2|uint3)"


def hold_own(steps: Sequence[Step], shared: Collection[str], lanes: Mapping[str, str]) -> list[Step]:
    """The steps with such elements in variables; `lanes` are indices of a thread, each with what it is counted from."""
    counted = [name for name, start in lanes.items() if start == "0"]
    names = [name for name in shared if not _may_have_other_names(name, steps)]
    return [_held(step, names, counted) if isinstance(step, Piece) else step for step in steps]


def _held(step: Piece, shared: Collection[str], counted: Collection[str]) -> Piece:
    for name in shared:
        index = _own_index(name, step.items, counted)
        if index is None:
            continue
        own = f"anymps_own_{name}"
        element = rf"\b{name}\s*\[\s*{re.escape(index)}(?: \* 1)?\s*\]"
        items = [replace(item, text=re.sub(element, own, item.text)) for item in step.items]
        names = frozenset({name})
        step = replace(
            step,
            items=(
                Item(f"auto {own} = {name}[anymps_i];", names),
                *items,
                Item(f"anymps_fission::put_back({name}[anymps_i], {own});", names, stores=True),
            ),
        )
    return step


def _own_index(name: str, items: Sequence[Item], counted: Collection[str]) -> str | None:
    """The one index that a piece uses of threadgroup memory, in a loop, if it is the thread's."""
    text = "\n".join(item.text for item in items)
    found = re.findall(rf"\b{name}\b(?:\s*\[\s*([\w.]+)(?: \* 1)?\s*\](?!\s*\[))?", text)
    loops = any(item.text.startswith("for") and re.search(rf"\b{name}\b", item.text) for item in items)
    if not loops or len(set(found)) != 1 or found[0] not in counted:
        return None
    word = found[0].split(".")[0]
    again = any(
        re.search(rf"\b{_TYPES}\s+{word}\b", item.text) for item in items if word not in item.declared
    )  # another variable of that name, in braces
    return None if again else str(found[0])


def _may_have_other_names(name: str, steps: Sequence[Step]) -> bool:
    """Whether something in the kernel may lead to the memory but its name: a pointer, a reference, a function."""
    for step in steps:
        if isinstance(step, Once) and re.search(rf"\b{name}\b", step.text) and not step.text.startswith(_OTHERS):
            return True
        for item in step.items if isinstance(step, Piece) else ():
            if not re.search(rf"\b{name}\b", item.text):
                continue
            if re.search(rf"\b{name}\b(?!\s*\[)", item.text) or "&" in item.text.replace("&&", ""):
                return True
    return False


def signed_indices(code: list[Token], first: int, last: int, indices: Collection[str]) -> dict[tuple[int, int], str]:
    """In each `int name = ...;` of sums and products of small numbers and names, the indices as `int`.

    The value is the same. Compilers make plain vector loads and stores of an address that is computed in `int`, and
    not of one in `uint`, as that may wrap. `indices` are unsigned, and below 1024.
    """
    again = {code[place].text for place in range(first, last + 1) if _may_be_declared(code[place - 1])}
    found: dict[tuple[int, int], str] = {}
    for index in range(first, last - 3):
        if code[index].text != "int" or code[index + 1].kind != "name" or code[index + 2].text != "=":
            continue
        end = index + 3
        while end <= last and _is_simple(code[end]):
            end += 1
        if end > last or code[end].text != ";":
            continue
        for place in range(index + 3, end):
            name = code[place].text
            if name in indices and name not in again:
                found[place, place] = f"int({name})"
    return found


def _may_be_declared(before: Token) -> bool:
    """Whether the name behind this token may be another one that has the same letters."""
    return before.text in (".", "->", "&", ">", "::") or (before.kind == "name" and before.text != "return")


def _is_simple(token: Token) -> bool:
    if token.text.isdigit():
        return int(token.text) < _SMALL
    return token.kind == "name" or token.text in ("+", "*")
