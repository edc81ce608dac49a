"""Turns loops that each thread steps through on its own into vector code for many threads.

`for (uint i = lane; i < n; i += 32) sum += a[i];` is a sequence of sums, which no compiler may reorder. Its first turn
in each thread, then the second in each, and so on, are vectors of threads, and each thread's own sums keep their order.
Only `for (uint i = START; i < BOUND; i += STEP)` is taken, where the body changes none of the three, leaves the loop at
its end alone, and calls nothing but functions of numbers. What a turn reads of memory is fetched before it, what it
stores is stored behind it. Loops whose numbers do not fit (`Turns` in `shim/msl/turns.h`), or whose first turn does not
read and write elements that adjoin, run thread by thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from anymps.metal.translation._brackets import closing
from anymps.metal.translation._fission_loops import is_steady, read_loop
from anymps.metal.translation._fission_names import dereferences
from anymps.metal.translation._fission_uniformity import Names
from anymps.metal.translation._pure_calls import PURE, WHOLE
from anymps.metal.translation._statements import ASSIGNMENTS, Statement, Unread, changed_names, read_statements
from anymps.metal.translation._tokens import Token

Render = Callable[[int, int, Mapping[tuple[int, int], str]], str]

_KINDS = (("uint",), ("int",), ("unsigned",), ("unsigned", "int"))
_COMPARISONS = frozenset({"<", ">", "<=", ">=", "==", "!=", "&&", "||", "?", ":", "!"})
_REFUSED = frozenset({"?", "&&", "||", "->", "{", "asm", "volatile"})  # what may be left out, or leads elsewhere


@dataclass(frozen=True)
class Access:
    """An element that a turn reads or writes: the text of the memory's name and of the index."""

    memory: str
    index: str


@dataclass(frozen=True)
class Turns:
    """The texts of a loop: its counter's type and name, the three parts of its head, and its body."""

    kind: str
    counter: str
    start: str
    bound: str
    step: str  # the same for the whole group
    body: str
    staged: str  # the body with `anymps_l0[anymps_j]`, `anymps_l1[anymps_j]`, ... in the place of elements
    reads: tuple[Access, ...]
    read: frozenset[int]  # those that must be fetched before
    stored: int | None  # the one that is stored
    changed: frozenset[str]  # what the body changes


def read_turns(
    code: list[Token], statement: Statement, names: Names, own: Collection[str], render: Render
) -> Turns | None:
    """The loop's parts, or None if its turns cannot be done for many threads.

    `own` are arrays and references of the thread; `render` gives the text of tokens from, up to and with.
    """
    try:
        return _read(code, statement, names, own, render) if code[statement.first].text == "for" else None
    except Unread:  # a statement of the body, which as a whole needs no reading
        return None


def _read(code: list[Token], statement: Statement, names: Names, own: Collection[str], render: Render) -> Turns | None:
    loop = read_loop(code, statement)
    if loop is None:
        return None
    start, condition, step = loop.parts(code)
    kind = tuple(token.text for token in loop.start.tokens[: -len(start) - 2])
    body = code[loop.body[0] + 1 : loop.body[1]]
    if kind not in _KINDS or [token.text for token in condition[:2]] != [loop.name, "<"] or not _is_plain(body):
        return None
    bound, by = condition[2:], _step(step, loop.name)
    if by is None or _COMPARISONS & {token.text for token in [*start[:-1], *bound, *by]}:
        return None
    changed = changed_names(body)
    # What may differ from turn to turn, or from thread to thread: start, bound and step must depend on none of it.
    differing = changed | {loop.name} | set(own) | names.memory - names.fixed
    if not all(is_steady(tokens, (), differing, False) for tokens in (start[:-1], bound, by)):
        return None
    if not names.is_steady(by) or not _adjoins(start[:-1], names, names.indices | set(names.lanes)):
        return None
    if names.may_store({token.text for token in body if token.kind == "name"}):
        return None
    found = _accesses(code, loop.body, loop.name, names, differing - {loop.name})
    if found is None:
        return None
    spans, stored, read = found
    texts = [Access(code[at].text, render(at + 2, end - 1, {})) for at, end in spans]
    reads = tuple(dict.fromkeys(texts))
    places = {span: f"anymps_l{reads.index(text)}[anymps_j]" for span, text in zip(spans, texts, strict=True)}
    first = loop.start.last - len(start) + 1
    return Turns(
        " ".join(kind),
        loop.name,
        render(first, loop.start.last - 1, {}),
        render(loop.condition[0] + 2, loop.condition[1], {}),
        render(loop.step[1] - len(by) + 1, loop.step[1], {}) if by else "1",
        render(loop.body[0] + 1, loop.body[1] - 1, {}),
        render(loop.body[0] + 1, loop.body[1] - 1, places),
        reads,
        frozenset(reads.index(text) for span, text in zip(spans, texts, strict=True) if span in read),
        None if stored is None else reads.index(texts[spans.index(stored)]),
        frozenset(changed),
    )


def _step(step: list[Token], counter: str) -> list[Token] | None:
    """What is added to the counter: the tokens, none where it is counted up by one; else None."""
    words = [token.text for token in step]
    if words in (["++", counter], [counter, "++"]):
        return []
    return step[2:] if words[:2] == [counter, "+="] and len(step) > 2 else None


def _is_plain(body: list[Token]) -> bool:
    """Whether a body does the same whatever its values are, and calls only what takes values and gives values."""
    for index, token in enumerate(body):
        before = body[index - 1].text if index else ""
        after = body[index + 1].text if index + 1 < len(body) else ""
        if token.text in _REFUSED or (token.text == ">" and after == "("):  # the latter may be `f<float>(x)`
            return False
        if token.kind == "name" and after == "(" and (token.text not in PURE | WHOLE or before == "."):
            return False
    return bool(body) and not dereferences(body)


_Span = tuple[int, int]


def _accesses(
    code: list[Token], body: _Span, counter: str, names: Names, differing: Collection[str]
) -> tuple[list[_Span], _Span | None, set[_Span]] | None:
    """The elements in a body, the one that its last statement stores, and those read; None if it has others."""
    statements = read_statements(code, *body)
    if any(one.kind == "control" or not one.plain or one.shared for one in statements):
        return None
    inner = {name for one in statements for name in one.declared}
    spans: list[_Span] = []
    stored: _Span | None = None
    read: set[_Span] = set()
    for one in statements:
        index = one.first
        while index <= one.last:
            if code[index].text != "[":
                index += 1
                continue
            end, at = closing(code, index), index - 1
            before, after = code[at - 1].text, code[end + 1].text
            if code[at].text not in names.uniform or before in (".", "&", "++", "--"):
                return None
            if after in (".", "[", "(", "++", "--"):
                return None
            place = code[index + 1 : end]
            if not is_steady(place, (), set(differing) | inner, False) or not _adjoins(place, names, {counter}):
                return None
            spans.append((at, end))
            if after in ASSIGNMENTS:
                if stored is not None or one is not statements[-1] or not _only_assigned(code, one.first, at):
                    return None
                stored = (at, end)
            if after != "=":
                read.add((at, end))
            index = end + 1
    return spans, stored, read


def _adjoins(tokens: list[Token], names: Names, indices: Collection[str]) -> bool:
    """Whether an expression is a sum of one of the indices and of what is the same for all threads."""
    terms: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.text in ("(", "[")) - (token.text in (")", "]"))
        if token.text == "+" and not depth:
            terms.append([])
        else:
            terms[-1].append(token)
    own = [one for one in terms if "".join(t.text for t in one) in indices]
    rest = [token.text for one in terms if one not in own for token in one]
    return len(own) == 1 and not set(rest) & (names.varying | set(indices))


def _only_assigned(code: list[Token], first: int, end: int) -> bool:
    """Whether what stands before a store is `name = ` alone, so that nothing is read behind it."""
    words = code[first:end]
    return len(words) % 2 == 0 and all(
        token.text in ASSIGNMENTS if place % 2 else token.kind == "name" for place, token in enumerate(words)
    )


def turn_lines(
    number: int, turns: Turns, prologue: Sequence[str], kept: Sequence[tuple[str, str]], returns: bool, one: str
) -> list[str]:
    """All turns of the group's threads, `one` thread after the other where they do not fit.

    `prologue` declares what a thread knows, without `kept`: what the body changes, with the array where that lives.
    """
    own = [(f"anymps_q{place}", name, array) for place, (name, array) in enumerate(kept)]
    here = ["[[maybe_unused]] const int anymps_i = anymps_b + anymps_j;", *prologue]
    now = [*here, f"[[maybe_unused]] const {turns.kind} {turns.counter} = anymps_u.at(anymps_j, anymps_t, anymps_d);"]
    taken = [f"[[maybe_unused]] auto {name} = {held}.all[anymps_j];" for held, name, _ in own]
    given = [f"{held}.all[anymps_j] = {name};" for held, name, _ in own]
    each = "for (int anymps_j = 0; anymps_j < anymps_v; ++anymps_j) {"
    kinds = [f"decltype({access.memory}[0])" for access in turns.reads]
    lines = [
        f"auto anymps_b{number} = [&](const int anymps_b, auto anymps_w) __attribute__((always_inline)) {{",
        "constexpr int anymps_v = decltype(anymps_w)::value;",
        f"if constexpr (!anymps_fission::in_vectors<{', '.join(kinds)}>) return false; else {{",
        f"anymps_fission::Turns<{turns.kind}, anymps_v> anymps_u;",
        each,
        *here,
        f"const {turns.kind} anymps_f = {turns.start};",
        f"anymps_u.see(anymps_j, anymps_f, {turns.bound});",
        *(["if (!anymps_all[anymps_i]) anymps_u.refused = true;"] if returns else []),
        "}",
        f"const auto anymps_d = {turns.step};",
        "if (!anymps_u.count(anymps_d)) return false;",
        *(f"anymps_fission::Held<decltype({a}[0]), anymps_v> {held}({a} + anymps_b);" for held, _, a in own),
        *(f"bool anymps_c{place} = true;" for place in range(len(turns.reads))),
        "unsigned anymps_t = 0;",
    ]
    for place, access in enumerate(turns.reads):
        lines += [
            f"const auto anymps_x{place} = [&](int anymps_j) __attribute__((always_inline)) "
            f"{{ {' '.join(now)} return {access.index}; }};",
            f"if (!anymps_fission::adjoin<anymps_v>(anymps_x{place}, anymps_c{place})) return false;",
        ]
    lines.append("for (; anymps_t < anymps_u.least; ++anymps_t) {")
    for place, access in enumerate(turns.reads):
        lines.append(f"typename anymps_fission::Held<{kinds[place]}, anymps_v>::All anymps_l{place};")
        if place in turns.read:
            lines.append(f"anymps_fission::fetch(anymps_l{place}, {access.memory}, anymps_x{place}, anymps_c{place});")
    lines += ["ANYMPS_ABREAST", each, *now, *taken, f"{{ {turns.staged} }}", *given, "}"]
    if turns.stored is not None:
        place = turns.stored
        lines.append(
            f"anymps_fission::store(anymps_l{place}, {turns.reads[place].memory}, anymps_x{place}, anymps_c{place});"
        )
    return [
        *lines,
        "}",
        "for (; anymps_t < anymps_u.most; ++anymps_t)",
        each,
        *now,
        f"if (!({turns.counter} < {turns.bound})) continue;",
        *taken,
        f"{{ {turns.body} }}",
        *given,
        "}",
        *(f"{held}.put({array} + anymps_b);" for held, _, array in own),
        "return true;",
        "} };",
        "for (int anymps_b = 0; anymps_b < anymps_n; anymps_b += anymps_fission::abreast) {",
        "const int anymps_e = anymps_b + anymps_fission::abreast;",
        f"if (anymps_e <= anymps_n && anymps_b{number}(anymps_b, anymps_fission::Number<anymps_fission::abreast>())) "
        "continue;",
        f"for (int anymps_i = anymps_b; anymps_i < anymps_e && anymps_i < anymps_n; ++anymps_i) {one}",
        "}",
    ]
