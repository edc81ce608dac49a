"""Where a Mac's answers and the virtual device's differ, case by case."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from anymps.verify._answers import Answer, Answers

_OWN: Final = "anymps: "
"""How a text of ours begins: an exception in place of what ends the process, or never returns, on a Mac."""
_LOOKS: Final = ("dtype", "shape", "layout", "strides", "device")
_PLAIN: Final = {"error": "error class", "text": "error message", "warns": "warnings", "value": "value"}


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
    """Compare the answers of all kinds."""
    comparison = Comparison()
    for kind, theirs in mac.answers.items():
        count = comparison.counts[kind] = Count()
        for case, answer in theirs.items():
            here = ours.answers.get(kind, {}).get(case)
            if here is None or "unasked" in (answer.get("does"), here.get("does")):
                count.missing += 1
                continue
            seen = _Seen()
            found = [Difference(kind, case, *one) for one in _case(answer, here, seen)]
            comparison.differences += found
            count.both += 1
            count.agree += not found
            count.exactly += seen.exactly and not found
            count.inputs += seen.inputs
    return comparison


def _case(mac: Answer, ours: Answer, seen: _Seen) -> Found:
    """What differs; a fault that the virtual device reports, and computes right, has to differ on a Mac."""
    reports = ours.get("reports", "no")
    if "reports" in mac:  # another virtual device's
        if mac["reports"] != reports:
            yield "known bug", f"reports: {mac['reports']}", f"reports: {reports}"
    elif reports != "no" and (ours.get("does") == "computes" or _is_own(ours)):
        right = mac.get("does") == "computes" and (_is_own(ours) or not any(_samples(mac, ours, seen)))
        if right and reports == "sure":
            yield "known bug", "does not show it", "reports it"
        return
    elif reports == "may" and mac.get("does") == "computes":
        return
    yield from _samples(mac, ours, seen)


def _samples(mac: Answer, ours: Answer, seen: _Seen) -> Found:
    operator = str(ours.get("operator", ""))
    if "samples" not in mac or "samples" not in ours:
        yield from _answer(mac, ours, operator, seen)
        return
    if len(mac["samples"]) != len(ours["samples"]):
        yield "number of samples", str(len(mac["samples"])), str(len(ours["samples"]))
    for number, (theirs, here) in enumerate(zip(mac["samples"], ours["samples"], strict=False), 1):
        for what, left, right in _answer(theirs, here, operator, seen):
            yield f"{what}, sample {number}", left, right


def _answer(mac: Answer, ours: Answer, operator: str, seen: _Seen) -> Found:
    does = mac.get("does", ""), ours.get("does", "")
    if "unasked" in does:
        return
    if does[0] != does[1]:
        # A process that would end, or wait for ever, is an exception here.
        if does[0] not in ("crashes", "hangs") or not _is_own(ours):
            yield "outcome", told(mac), told(ours)
        return
    for name, words in _PLAIN.items():
        if mac.get(name) != ours.get(name):
            yield words, _shown(mac.get(name)), _shown(ours.get(name))
    if "results" in mac and "results" in ours:
        yield from _results(mac, ours, operator, seen)


def _is_own(answer: Answer) -> bool:
    return str(answer.get("text", "")).startswith(_OWN)


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
    elif mac.get("values") == ours.get("values") and not mac["dtype"].startswith(("float", "bfloat", "complex")):
        yield "values", "differ, but not those that were kept", ""


def _same_number(mac: str, ours: str) -> bool:
    if mac == ours:
        return True
    try:
        left, right = float(mac), float(ours)
    except ValueError:
        return False
    return abs(left - right) <= 1e-4 * max(1.0, abs(right))


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
