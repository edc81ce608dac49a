"""The sentences of a comparison of two runs: why they part at a call, what to do, how far apart they are."""

from __future__ import annotations

__all__ = ["advice", "apart", "facts", "numbers", "operators", "place", "reason", "verdict", "why"]

import math
from typing import TYPE_CHECKING, Final

from anymps.report import _text as text
from anymps.rules.faults import Hazard, all_hazards

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anymps.compare import Call, Comparison, Parting, Side, Site, Sketch

_DEVICES: Final = {"cpu": "the CPU", "cuda": "CUDA", "mps": "mps"}
_GENERATORS: Final = {"cpu": "the Mersenne Twister", "cuda": "CUDA's Philox", "mps": "Metal's Philox"}
_MOST_NAMES: Final = 6  # operators of one block

_REASONS: Final = {
    "random": "another random stream",
    "autocast": "autocast casts to another dtype",
    "dtype": "another dtype",
    "number": "another number from the same inputs",
    "sizes": "results of other sizes",
    "choice": "rounding decides a choice",
    "branch": "another way through the program",
    "data": "other data from outside of torch",
    "grown": "rounding that has grown",
}


def name_of(side: Side) -> str:
    """What a sentence calls a run."""
    return _DEVICES.get(side.name, side.name)


def reason(parting: Parting) -> str:
    """The cause in a few words."""
    return _REASONS[parting.cause.value]


def verdict(found: Comparison) -> str:
    """One sentence: whether they agree, or where they part first and why."""
    failed = [side for side in found.sides if side.ending.error]
    if not found.is_used:
        unused = next(side for side in found.sides if side.name != "cpu" and not side.is_used)
        return f"Nothing ran on {unused.name}: both runs computed on the CPU, so this says nothing about {unused.name}."
    if found.first is not None:
        where = place(found.first.call.site)
        more = f", and stops on {name_of(failed[0])}" if failed else ""
        at = " ".join(filter(None, [step(found, found.first.call, "in "), f"at {where}" if where else ""]))
        return f"The runs part {at}: {reason(found.first)}{more}."
    if failed:
        return f"The script stops on {name_of(failed[0])}, not on {name_of(_other(found, failed[0]))}."
    if not found.losses_agree:
        return f"The losses part, by up to {percent(found.largest_apart)}, though no compared call does."
    if found.rounding.compared and found.rounding.same == found.rounding.compared:
        bound = f"the same inputs gave the same bits in all of {found.rounding.compared:,} results"
    elif found.rounding.share:
        bound = f"no result is further apart than {percent(found.rounding.share)} of what rounding may do"
    else:
        bound = "no result is further apart than rounding may take it"
    losses = ""
    if found.losses:
        apart = found.largest_apart
        losses = "; the losses are the same" if not apart else f"; the losses differ by at most {percent(apart)}"
    return f"The runs agree: {bound}{losses}."


def _other(found: Comparison, side: Side) -> Side:
    return next(it for it in found.sides if it is not side)


def percent(share: float) -> str:
    """`0.84 %`, `3.1e-05 %`."""
    if not math.isfinite(share):
        return "more than any number"
    return f"{100 * share:.{3 if share >= 0.1 else 2}g} %"


def place(site: Site) -> str:
    """`train.py:12`; empty where no line is known."""
    return f"{site.file.rpartition('/')[2]}:{site.line}" if site.line else ""


def step(found: Comparison, call: Call, lead: str = "") -> str:
    """`step 3`, after `lead`; empty for a program without an optimizer."""
    return f"{lead}step {call.step + 1:,}" if any(side.ending.steps for side in found.sides) else ""


def short(call: Call) -> str:
    """`bernoulli_`, as torch's documents have it."""
    return call.operator.split(".")[1] if call.operator.startswith("aten.") else call.operator


def operators(calls: Sequence[Call]) -> str:
    """The operators of a block, each once."""
    names = list(dict.fromkeys(f"`{short(call)}`" for call in calls))
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def numbers(sketch: Sketch) -> str:
    """`float32 (64, 32), from -1.2 to 3.4, mean 0.1`."""
    kind = f"{sketch.dtype} {tuple(sketch.shape)}" if sketch.shape else sketch.dtype
    if not sketch.count:
        return f"{kind}, empty"
    if sketch.count == 1:
        return f"{kind}, {_number(sketch.elements[0])}"
    parts = [f"from {_number(sketch.low)} to {_number(sketch.high)}", f"mean {_number(sketch.total / sketch.count)}"]
    parts += [f"{sketch.nans:,} NaN"] if sketch.nans else []
    parts += [f"{sketch.infinities:,} infinite"] if sketch.infinities else []
    return ", ".join([kind, *parts])


def _number(value: float) -> str:
    return f"{value:.9g}"


def apart(parting: Parting) -> str:
    """The distance, and that of rounding: `0.012, 0.84 % of the largest number; rounding may do 2.4e-06`."""
    if parting.one is None or parting.other is None:
        return ""
    if parting.one.shape != parting.other.shape:
        return "the sizes differ"
    if not math.isfinite(parting.apart):
        return "NaN or infinity in one, not in the other"
    if not parting.apart:
        return "the numbers looked at are the same"
    words = f"{parting.apart:.3g}, {percent(parting.relative)} of the largest number"
    return f"{words}; rounding may do {parting.allowed:.2g}" if parting.cause.value == "number" else words


def why(found: Comparison, parting: Parting) -> str:
    """What happens, in a sentence or two."""
    return _WHYS[parting.cause.value](found, parting)


def _random(found: Comparison, parting: Parting) -> str:
    names = [_GENERATORS.get(side.name.partition(",")[0], side.name) for side in found.sides]
    said = f"`{short(parting.call)}` draws other numbers on each device from the same seed"
    if parting.call.with_generator:
        return f"{said}: the generator that the script gives it belongs to its device."
    return f"{said}: {names[0]} on {name_of(found.sides[0])}, {names[1]} on {name_of(found.sides[1])}."


def _autocast(found: Comparison, parting: Parting) -> str:
    parts = []
    for side, calls in zip(found.sides, (parting.left, parting.right), strict=True):
        dtype = _computed_in(calls[-1])
        own = next((call.autocast for call in calls if call.autocast), "")
        is_on = f"autocast to {own}" if own else "no autocast"
        parts.append(f"in {dtype} on {name_of(side)} ({is_on})")
    said = f"`{short(parting.call)}` computes {parts[0]}, and {parts[1]}."
    known = found.lists.get(parting.call.name)
    if known is not None:
        release = found.sides[1].facts.get("torch", "")
        on = ", ".join(known.devices)
        off = ", ".join(device for device in ("cpu", "cuda", "mps") if device not in known.devices)
        said += f" Torch {release} has `{known.name}` on autocast's lists of {on}" + (
            f", not of {off}." if off else "."
        )
    return said


def _computed_in(call: Call) -> str:
    floats = [value.sketch.dtype for value in (*call.inputs, *call.results) if value.sketch.is_floating]
    names = list(dict.fromkeys(floats))
    return names[0] if len(names) == 1 else f"{names[0]} with a result in {names[-1]}" if names else "integers"


def _dtype(found: Comparison, parting: Parting) -> str:
    parts = [
        f"in {_computed_in(calls[-1])} on {name_of(side)}"
        for side, calls in zip(found.sides, (parting.left, parting.right), strict=True)
    ]
    wide = any(_is_wide(value.sketch) for call in parting.left for value in (*call.inputs, *call.results))
    more = " The mps device has no float64, so the script, or a library, converts to float32 there." if wide else ""
    return f"`{short(parting.call)}` computes {parts[0]}, and {parts[1]}.{more}"


def _is_wide(sketch: Sketch) -> bool:
    return sketch.dtype in ("float64", "complex128")


def _in_pieces(found: Comparison, parting: Parting) -> str:
    if [call.name for call in parting.left] == [call.name for call in parting.right]:
        return ""
    first, second = (name_of(side) for side in found.sides)
    return f" On {first} it is {operators(parting.left)}, on {second} {operators(parting.right)}."


def _kernel(found: Comparison, parting: Parting) -> str:
    said = (
        "From the same inputs the results are further apart than rounding takes them: another kernel computes another "
    )
    said += f"number.{_in_pieces(found, parting)}"
    faults = _faults(found, parting)
    if faults:
        names = " and ".join(f"{fault.id}, {fault.title}" for fault in faults[:3])
        said += f" Known of `{parting.call.name}` in this release: {names}."
    return said


def _faults(found: Comparison, parting: Parting) -> list[Hazard]:
    """What is known to be wrong with the operator on mps, in the release of the second run."""
    release = _release(found.sides[1].facts.get("torch", ""))
    name = parting.call.name
    return [fault for fault in all_hazards() if name in fault.operators and fault.since <= release <= fault.until]


def _release(version: str) -> tuple[int, int]:
    parts = version.split(".")
    return (int(parts[0]), int(parts[1])) if len(parts) > 1 and parts[0].isdigit() and parts[1].isdigit() else (0, 0)


def _sizes(found: Comparison, parting: Parting) -> str:
    shapes = [tuple(sketch.shape) if sketch else () for sketch in (parting.one, parting.other)]
    return (
        f"`{short(parting.call)}` gives {shapes[0]} in one run and {shapes[1]} in the other: a size hangs on numbers."
    )


def _choice(found: Comparison, parting: Parting) -> str:
    said = f"`{short(parting.call)}` chooses by numbers that differ by rounding alone, and chooses otherwise."
    return said + _began(found)


def _branch(found: Comparison, parting: Parting) -> str:
    sides = []
    for side, calls in zip(found.sides, (parting.left, parting.right), strict=True):
        lines = list(dict.fromkeys(filter(None, (place(call.site) for call in calls))))
        if lines:
            sides.append(f"{text.plural(len(calls), 'call')} at {', '.join(lines[:4])} on {name_of(side)}")
    said = "One run takes lines that the other does not: " + "; ".join(sides) + "."
    if found.decided is not None:
        values = f"{_number(found.decided.left)} on {name_of(found.sides[0])}, {_number(found.decided.right)} on "
        said += f" The number read before it, at {place(found.decided.site)}, is {values}{name_of(found.sides[1])}."
    else:
        said += " The numbers read before it are the same, so the script, or a library, asks for the device."
    return said


def _data(found: Comparison, parting: Parting) -> str:
    return (
        f"`{short(parting.call)}` is given other numbers in each run, and no call of torch has made them: they come "
        "from a file, a clock, NumPy or another source that the seeds do not reach."
    )


def _grown(found: Comparison, parting: Parting) -> str:
    return (
        "No call computes a wrong number; differences by rounding were carried on until here, where they are larger "
        f"than PyTorch's tests of mps allow.{_began(found)}"
    )


def _began(found: Comparison) -> str:
    """Where rounding made the first difference."""
    first = found.rounding.first
    if first is None:
        return ""
    call = first.right[-1]
    sums = f", which adds up {call.bound.terms:,} numbers in an order of its own" if call.bound.kind == "sum" else ""
    where = place(call.site)
    return f" The first came from `{short(call)}`" + (f" at {where}" if where else "") + f"{sums}."


_WHYS: Final = {
    "random": _random,
    "autocast": _autocast,
    "dtype": _dtype,
    "number": _kernel,
    "sizes": _sizes,
    "choice": _choice,
    "branch": _branch,
    "data": _data,
    "grown": _grown,
}

_ADVICE: Final = {
    "random": "To compare what else differs: `anymps compare --random cpu`. To train on the same numbers, draw them on "
    "the CPU and move them: `torch.rand(shape, generator=torch.Generator().manual_seed(0)).to(device)`. Dropout has "
    "no generator: compare with `p=0`, or in `eval()`.",
    "autocast": "Take the line out of autocast, on all devices: `with torch.autocast(device.type, enabled=False):` on "
    "`x.float()`.",
    "dtype": "Convert on both devices: `x.float()` where the tensor is made.",
    "number": "Give the call's inputs to both devices alone. If the other device is right, write the line with another "
    "operator, or compute it on the CPU: `x.cpu()`.",
    "sizes": "Look at the comparison or the mask that the size comes from.",
    "choice": "Nothing is wrong: either choice is right within rounding. Compare the losses of several seeds instead.",
    "branch": "",
    "data": "Seed it, or read it once and keep it in a file.",
    "grown": "Nothing is wrong with one call. Compare the losses of several seeds: they scatter as much on one device.",
}


def advice(found: Comparison, parting: Parting) -> str:
    """What to do; empty where that hangs on the program."""
    if len({call.autocast for call in (*parting.left, *parting.right) if call.autocast}) > 1:
        return "Give both devices one dtype: `torch.autocast(device.type, dtype=torch.bfloat16)`."
    faults = _faults(found, parting) if parting.cause.value == "number" else []
    return f"If it is the known fault: {faults[0].fix}" if faults else _ADVICE[parting.cause.value]


def facts(side: Side) -> str:
    """The run in one line: `torch 2.13.0, M3 Pro 18GB, 320 calls in 6 steps`."""
    known = side.facts
    words = [f"torch {known['torch']}" if known.get("torch") else "", known.get("mac", "")]
    words += ["PyTorch's own kernels"] if known.get("kernels") == "real" else []
    words += ["on an NVIDIA card"] if known.get("substrate") == "cuda" else []
    steps = f" in {text.plural(side.ending.steps, 'step')}" if side.ending.steps else ""
    words.append(f"{text.plural(side.calls, 'call')}{steps}")
    words += ["ended early"] if side.ending.is_cut else []
    return ", ".join(filter(None, words))
