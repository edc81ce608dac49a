"""Variables in threadgroup memory: each declaration becomes a struct with a place in the memory of the group."""

from __future__ import annotations

from anymps.metal.translation._brackets import closing, is_attribute, split_commas
from anymps.metal.translation._structure import Function
from anymps.metal.translation._token_edits import erased
from anymps.metal.translation._tokens import Edit, Token


def shared_memory(code: list[Token], function: Function) -> list[Edit]:
    """`threadgroup float a[32], b;` of a function becomes a struct with a place in the group's memory."""
    edits: list[Edit] = []
    first, last = function.body
    depth_start = first + 1
    index = first + 1
    while index < last:
        text = code[index].text
        if text in ("(", "["):
            index = closing(code, index) + 1
            continue
        if text in ("{", "}", ";", ":"):
            depth_start = index + 1
        elif text == "threadgroup":
            end = index
            while end < last and code[end].text != ";":
                end = closing(code, end) + 1 if code[end].text in ("(", "[", "{") else end + 1
            edit = _shared_declaration(function, code[depth_start : end + 1])
            if edit is not None:
                edits += edit
            index = end
            continue
        index += 1
    return edits


def _shared_declaration(function: Function, statement: list[Token]) -> list[Edit] | None:
    parts = split_commas(statement[:-1])
    names, values = [], []
    for number, part in enumerate(parts):
        value = next((i for i, token in enumerate(part) if token.text in ("=", "{")), len(part))
        words = part[:value]
        bracket = next(
            (i for i, token in enumerate(words) if token.text == "[" and not is_attribute(words, i)), len(words)
        )
        at = bracket - 1
        if at < 0 or words[at].kind != "name" or (number == 0 and at < 1):
            return None
        if words[at - 1].text in ("*", "&") and at > 0:
            return None  # a pointer to such memory
        if number == 0 and (words[at - 1].text == ")" or all(token.text != "threadgroup" for token in words)):
            return None  # in the value of another variable, as in a cast
        names.append(words[at].text)
        values.append(part[value:])
        if number == 0:
            kind = erased(words[:at])
    if not names:
        return None
    owner = "nullptr"
    if function.kernel:
        arguments = f"<{', '.join(name for name in function.template if name)}>" if function.template else ""
        owner = f"(&{function.called}{arguments})"
    first, last = statement[0].start, statement[-1]
    if any(values):
        return _initialized(statement, parts, names, values, kind, owner)
    bind = " ".join(_bound(f"anymps_shared_{first}", owner, name) for name in names)
    return [Edit(first, first, f"struct anymps_shared_{first} {{ "), Edit(last.end, last.end, f" }}; {bind}")]


def _bound(tag: str, owner: str, name: str) -> str:
    return f"auto& {name} = anymps_launch::Shared<{tag}, {owner}>::get().{name};"


def _initialized(
    statement: list[Token], parts: list[list[Token]], names: list[str], values: list[list[Token]], kind: str, owner: str
) -> list[Edit]:
    """Each variable by itself; after one with a value, that every thread writes it. The values stay in place."""
    edits = []
    for number, (part, name, value) in enumerate(zip(parts, names, values, strict=True)):
        start = part[0].start
        tag = f"anymps_shared_{start}"
        bound = f"; }}; {_bound(tag, owner, name)}"
        if number:
            edits.append(Edit(start, start, f"struct {tag} {{ {kind} "))
        else:
            edits.append(Edit(start, start, f"struct {tag} {{ "))
        if value:
            held = f"{bound} {{ anymps_launch::Plain<decltype({name})> anymps_value "
            edits.append(Edit(value[0].start, value[0].start, held))
            bound = f"; anymps_launch::set_shared({name}, anymps_value); }}"
        end = statement[-1] if number == len(parts) - 1 else None
        if end is not None:
            edits.append(Edit(end.start, end.end, bound))
        else:
            after = part[-1].end
            comma = next(token for token in statement if token.start >= after and token.text == ",")
            edits.append(Edit(comma.start, comma.end, f"{bound} "))
    return edits
