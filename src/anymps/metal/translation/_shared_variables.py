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
    """Each variable by itself; after one with a value, that every thread writes it. The values stay in place."""
    edits: list[Edit] = []
    owner, kind = "nullptr", ""
    if function.kernel:
        arguments = f"<{', '.join(name for name in function.template if name)}>" if function.template else ""
        owner = f"(&{function.called}{arguments})"
    parts = split_commas(statement[:-1])
    for number, part in enumerate(parts):
        value = next((i for i, token in enumerate(part) if token.text in ("=", "{")), len(part))
        words = part[:value]
        sizes = (i for i, token in enumerate(words) if token.text == "[" and not is_attribute(words, i))
        at = next(sizes, len(words)) - 1
        if at < 0 or words[at].kind != "name" or (number == 0 and at < 1):
            return None
        if at > 0 and words[at - 1].text in ("*", "&"):
            return None  # a pointer to such memory
        if number == 0 and (words[at - 1].text == ")" or all(token.text != "threadgroup" for token in words)):
            return None  # in the value of another variable, as in a cast
        name, start = words[at].text, part[0].start
        kind = kind or f"{erased(words[:at])} "
        tag = f"anymps_shared_{start}"
        bound = f"; }}; auto& {name} = anymps_launch::Shared<{tag}, {owner}>::get().{name};"
        edits.append(Edit(start, start, f"struct {tag} {{ {kind if number else ''}"))
        if value < len(part):
            held = f"{bound} {{ anymps_launch::Plain<decltype({name})> anymps_value "
            edits.append(Edit(part[value].start, part[value].start, held))
            bound = f"; anymps_launch::set_shared({name}, anymps_value); }}"
        end = next(token for token in statement if token.start >= part[-1].end and token.text in (",", ";"))
        edits.append(Edit(end.start, end.end, f"{bound} "))
    return edits
