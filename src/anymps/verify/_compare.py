"""Where a Mac's answers and the virtual device's differ, case by case."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from anymps.verify._answers import Answer, Answers

_OWN: Final = "anymps: "
"""How a text of ours begins: an exception in place of what ends the process, or never returns, on a Mac."""
_LOOKS: Final = ("dtype", "shape", "layout", "strides", "device")


@dataclass
class Count:
    """Of one kind: answers that are in both, how many of them agree, and how.

    `exactly` counts those without any difference, in bits too; `inputs` samples whose inputs are others, so that only
    the form of their results was compared; `missing` answers that one side does not have.
    """

    both: int = 0
    agree: int = 0
    exactly: int = 0
    inputs: int = 0
    missing: int = 0


@dataclass(frozen=True)
class Difference:
    """One difference: the `kind` and `case`, `what` is another, and what the Mac and the virtual device answered."""

    kind: str
    case: str
    what: str
    mac: str
    ours: str


@dataclass
class Comparison:
    """The counts by kind, and every difference."""

    counts: dict[str, Count] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)


@dataclass
class _Seen:
    """What the comparison of one case found besides its differences."""

    exactly: bool = True
    inputs: int = 0


Found = Iterator[tuple[str, str, str]]
"""What is another, on the Mac and here."""


def compare(mac: Answers, ours: Answers) -> Comparison:
    """Compare the answers of all kinds but times, which no virtual device has."""
    comparison = Comparison()
    for kind, theirs in mac.answers.items():
        if kind == "times":
            continue
        count = comparison.counts[kind] = Count()
        for case, answer in theirs.items():
            here = ours.answers.get(kind, {}).get(case)
            if here is None or "unasked" in (answer.get("does"), here.get("does")):
                count.missing += 1
                continue
            seen = _Seen()
            found = [Difference(kind, case, *one) for one in _case(kind, answer, here, seen)]
            comparison.differences += found
            count.both += 1
            count.agree += not found
            count.exactly += seen.exactly and not found
            count.inputs += seen.inputs
    return comparison


def _case(kind: str, mac: Answer, ours: Answer, seen: _Seen) -> Found:
    if kind == "faults":
        yield from _fault(mac, ours)
    elif "samples" in mac and "samples" in ours:
        operator = str(ours.get("operator", "")) if kind != "streams" else ""
        if len(mac["samples"]) != len(ours["samples"]):
            yield "number of samples", str(len(mac["samples"])), str(len(ours["samples"]))
        for number, (theirs, here) in enumerate(zip(mac["samples"], ours["samples"], strict=False), 1):
            place = f", sample {number}"
            for what, left, right in _answer(theirs, here, operator, seen):
                yield what + place, left, right
    else:
        yield from _answer(mac, ours, str(ours.get("operator", "")), seen)


def _answer(mac: Answer, ours: Answer, operator: str, seen: _Seen) -> Found:
    does = mac.get("does", ""), ours.get("does", "")
    if "unasked" in does:
        return
    if does[0] != does[1]:
        # A process that would end, or wait for ever, is an exception here.
        stands_in = does[0] in ("crashes", "hangs") and str(ours.get("text", "")).startswith(_OWN)
        if not stands_in:
            yield "outcome", told(mac), told(ours)
        return
    for name, words in _PLAIN.items():
        if mac.get(name) != ours.get(name):
            yield words, _shown(mac.get(name)), _shown(ours.get(name))
    if "names" in mac and "names" in ours:
        yield from _names(mac["names"], ours["names"])
    if "rows" in mac and "rows" in ours:
        yield from _rows(mac["rows"], ours["rows"])
    if "results" in mac and "results" in ours:
        yield from _results(mac, ours, operator, seen)


_PLAIN: Final = {
    "error": "error class",
    "text": "error message",
    "warns": "warnings",
    "waits": "waits for the device",
    "value": "value",
}


def _names(mac: list[str], ours: list[str]) -> Found:
    only_there, only_here = sorted(set(mac) - set(ours)), sorted(set(ours) - set(mac))
    if only_there or only_here:
        yield "names", ", ".join(only_there) or "no others", ", ".join(only_here) or "no others"


def _rows(mac: list[list[Any]], ours: list[list[Any]]) -> Found:
    """The first row that is another: those behind it follow from it."""
    for theirs, here in zip(mac, ours, strict=False):
        if theirs != here:
            yield "bytes in tensors and in the driver", _shown(theirs), _shown(here)
            return
    if len(mac) != len(ours):
        yield "number of rows", str(len(mac)), str(len(ours))


def _results(mac: Answer, ours: Answer, operator: str, seen: _Seen) -> Found:
    theirs, here = mac["results"], ours["results"]
    if len(theirs) != len(here):
        yield "number of results", str(len(theirs)), str(len(here))
        return
    same_inputs = mac.get("inputs") == ours.get("inputs")
    seen.inputs += not same_inputs
    for left, right in zip(theirs, here, strict=True):
        looks = [(name, left.get(name), right.get(name)) for name in _LOOKS if left.get(name) != right.get(name)]
        yield from ((name, _shown(one), _shown(other)) for name, one, other in looks)
        if not looks and same_inputs:
            yield from _values(left, right, operator, seen)


def _values(mac: Answer, ours: Answer, operator: str, seen: _Seen) -> Found:
    if "python" in mac or "python" in ours:
        if mac.get("python") != ours.get("python"):
            yield "result type", _shown(mac.get("python")), _shown(ours.get("python"))
        elif not _same_number(mac["value"], ours["value"]):
            yield "result", mac["value"], ours["value"]
        return
    if mac.get("digest") == ours.get("digest") or "values" not in mac or "values" not in ours:
        return  # the same, or random on one side at least
    seen.exactly = False
    from anymps.verify.cases import value_difference

    how = value_difference(mac, ours, operator)
    if how is not None:
        yield "values", *how
    elif mac.get("values") == ours.get("values") and _is_exact(mac):
        yield "values", "differ, but not those that were kept", ""


def _is_exact(result: Answer) -> bool:
    return not str(result["dtype"]).startswith(("float", "bfloat", "complex"))


def _same_number(mac: str, ours: str) -> bool:
    if mac == ours:
        return True
    try:
        left, right = float(mac), float(ours)
    except ValueError:
        return False
    return abs(left - right) <= 1e-4 * max(1.0, abs(right))


def _fault(mac: Answer, ours: Answer) -> Found:
    """A fault that a Mac shows and ours does not report, or the reverse unless it is known to be intermittent."""
    theirs, here = str(mac.get("text", "")), str(ours.get("text", ""))
    more = f": {theirs}" if theirs else ""
    if mac.get("shows") and not ours.get("shows"):
        yield "known fault", f"shows it{more}", "does not report it"
    elif ours.get("shows") and ours.get("sure") and not mac.get("shows"):
        yield "known fault", f"does not show it{more}", "reports it"
    elif mac.get("does") not in ("crashes", "hangs") and here and not here.startswith(_OWN) and theirs != here:
        yield "error message", theirs or "none", here


def told(answer: Answer) -> str:
    """What a device did, in one line."""
    does = str(answer.get("does", "answers"))
    if does == "refuses":
        return f"refuses: {answer.get('error', '')}: {answer.get('text', '')}"
    return f"{does}: {answer['text']}" if answer.get("text") else does


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value)) if value else "none"
    return "none" if value is None else str(value)
