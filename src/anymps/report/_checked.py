"""What computed a run's numbers, and what they were compared with: `--kernels real` and `--check-numbers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from anymps._errors import UnsupportedTorchError
from anymps._text import OWN_KERNELS, base_name, kernels_of
from anymps.record import Fate, Meta, OperatorUse
from anymps.report._text import percent, plural
from anymps.rules import has_metal_kernel, parse_torch_version

_WORTH: Final = (
    "the same kernel code as {}, up to what Apple's driver does with exp, log, sin and division, and to the order "
    "inside a simd group"
)
_COPIES: Final = frozenset(("copy", "_copy_from", "_copy_from_and_resize", "_to_copy", "_local_scalar_dense"))
_MOST_REASONS: Final = 4


class Told(NamedTuple):
    """A sentence for the short report, and all that there is to say."""

    in_short: str
    in_full: str


def own_kernels_sentence(calls: int, of: int, kernels: str = OWN_KERNELS) -> str:
    """`PyTorch's own kernels computed 310 of 1,024 calls on mps (30 %).`"""
    if not of:
        return f"No calls ran on mps, so {kernels} computed none."
    share = percent(calls, of)
    computed = f"{kernels[0].upper()}{kernels[1:]} computed {calls:,}"
    return f"{computed} of {plural(of, 'call')} on mps" + (f" ({share})." if share else ".")


def own_kernels(run: Meta, operators: Sequence[OperatorUse]) -> Told | None:
    """Which calls PyTorch's own kernels computed; None if the run had none, or its end was not recorded."""
    real = run.real_calls
    if real is None:
        return None
    kernels, of = kernels_of(run.kernels_torch, run.torch_version), _native_calls(operators)
    short = own_kernels_sentence(sum(real.values()), of, kernels)
    worth = _WORTH.format("the Mac" if kernels == OWN_KERNELS else "a Mac with that release")
    return Told(short, f"{short} That is {worth}. This machine's CPU computed the others." if of else short)


def own_kernels_object(run: Meta, operators: Sequence[OperatorUse]) -> dict[str, object] | None:
    """The same for programs."""
    real = run.real_calls
    if real is None:
        return None
    release = run.kernels_torch or None
    by_operator = dict(sorted(real.items()))
    return {"torch": release, "calls": sum(real.values()), "of": _native_calls(operators), "operators": by_operator}


def numbers(run: Meta, operators: Sequence[OperatorUse]) -> Told | None:
    """What the check of numbers compared, and which calls MPSGraph has on a Mac; None if nothing was checked."""
    checked = run.numbers
    if checked is None:
        return None
    short = "Numbers: no calls were compared with the CPU."
    if checked.compared:
        wrong = f"{checked.wrong:,} {'is' if checked.wrong == 1 else 'are'} wrong"
        calls = f"{plural(checked.compared, 'call')} of {plural(checked.operators, 'operator')}"
        result = wrong if checked.wrong else "all agree within rounding"
        short = f"Numbers: compared {calls} with the CPU: {result}."
    sentences = [short]
    if checked.left_out:
        reasons = sorted(checked.left_out.items(), key=lambda reason: (-reason[1], reason[0]))
        listed = "; ".join(f"{reason} ({count:,})" for reason, count in reasons[:_MOST_REASONS])
        sentences.append(f"Not compared: {listed}{'; and others' if len(reasons) > _MOST_REASONS else ''}.")
    if share := percent(*_graph_share(run, operators)):
        kernels = run.kernels_torch
        with_torch = f" with torch {kernels}" if kernels != run.torch_version.partition("+")[0] else ""
        sentences.append(
            f"On a Mac{with_torch if kernels else ''}, MPSGraph computes {share} of the calls, and how it rounds is "
            "not public; PyTorch's own kernels compute the rest."
        )
    return Told(short, " ".join(sentences))


def numbers_object(run: Meta, operators: Sequence[OperatorUse]) -> dict[str, object] | None:
    """The same for programs."""
    checked = run.numbers
    if checked is None:
        return None
    graphs, calls = _graph_share(run, operators)
    return {
        "compared": checked.compared,
        "operators": checked.operators,
        "wrong": checked.wrong,
        "left_out": dict(sorted(checked.left_out.items())),
        "mpsgraph": {"calls": graphs, "of": calls},
    }


def _native_calls(operators: Sequence[OperatorUse]) -> int:
    """All calls on mps, views and copies too."""
    return sum(use.count for use in operators if use.fate is Fate.NATIVE)


def _graph_share(run: Meta, operators: Sequence[OperatorUse]) -> tuple[int, int]:
    """Calls of operators that have no kernel of PyTorch's own, and all calls; no copies.

    In the release whose numbers the run had: that of the Metal kernels that it ran on, else the installed one.
    """
    try:
        release = parse_torch_version(run.kernels_torch or run.torch_version).release
    except UnsupportedTorchError:
        return 0, 0
    graphs = calls = 0
    for use in operators:
        base = base_name(use.name)
        if use.fate is not Fate.NATIVE or not use.name.startswith("aten::") or base in _COPIES:
            continue
        calls += use.count
        graphs += 0 if has_metal_kernel(base, release) else use.count
    return graphs, calls
