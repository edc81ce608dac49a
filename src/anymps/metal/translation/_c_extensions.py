"""Forms that Metal's compiler has from C and OpenCL, as C++ that every compiler knows: lists, ranges, `coherent`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from anymps.metal.translation._brackets import closing, split_commas
from anymps.metal.translation._tokens import Edit, Token, blank

LONG_VECTOR = re.compile(r"(?:bool|u?(?:char|short|int|long)|half|bfloat|float)[34]")
"""Vectors that a list can be shorter than."""


def coherence(tokens: list[Token], index: int) -> Token | None:
    """The last token of the qualifier `coherent` or `coherent(system)`; None where it is a name like others."""
    following = [token.text for token in tokens[index + 1 : index + 4]]
    if following[:1] == ["("] and following[2:] == [")"] and following[1] in ("device", "system"):
        return tokens[index + 3]
    return tokens[index] if tokens[index + 1 : index + 2] and tokens[index + 1].kind == "name" else None


def short_list(tokens: list[Token], index: int) -> Iterable[Edit]:
    """`uint4 v = {a, b, c};`: what the list lacks is zero, as of an array. `uint4(a, b, c)` stays wrong."""
    if [token.text for token in tokens[index + 2 : index + 4]] != ["=", "{"]:
        return
    close = closing(tokens, index + 3)
    parts = split_commas(tokens[index + 4 : close])
    if 1 < len(parts) < int(tokens[index].text[-1]) and all(part[0].text != "{" for part in parts):
        opening = tokens[index + 3]
        yield Edit(opening.start, opening.end, f"::anymps_vectors::listed<{tokens[index].text}>(")
        yield Edit(tokens[close].start, tokens[close].end, ")")


def filled_array(text: str, tokens: list[Token], index: int) -> Iterable[Edit]:
    """`float a[N] = {[0 ... N - 1] = x};`, which clang has from C: a loop does it."""
    close = closing(tokens, index)
    if [token.text for token in tokens[index + 1 : index + 4]] != ["[", "0", "..."] or tokens[index - 2].text != "]":
        return
    end = closing(tokens, index + 1)
    opening = next((at for at in range(index - 2, 0, -1) if tokens[at].text == "["), 1)
    if tokens[end + 1].text != "=" or len(split_commas(tokens[index + 1 : close])) != 1:
        return
    loop = "{}; for (int anymps_i = 0; anymps_i <= ("
    kept = text.count("\n", tokens[index].start, tokens[index + 3].end) * "\n"
    yield Edit(tokens[index].start, tokens[index + 3].end, loop + kept)
    yield Edit(tokens[end].start, tokens[end].end, f"); ++anymps_i) {tokens[opening - 1].text}[anymps_i]")
    yield blank(text, tokens[close])
