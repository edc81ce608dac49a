"""The sentences of a comparison of two runs: why they diverge at a call, what to do, how much they differ."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from anymps._text import listed, step_name
from anymps.compare import Cause, Comparison, Divergence, Rounding, Side, Sketch, TracedCall
from anymps.record import Site
from anymps.report import _text as text
from anymps.rules.faults import Hazard, all_hazards

if TYPE_CHECKING:
    from collections.abc import Sequence

_DEVICES: Final = {"cpu": "the CPU", "cuda": "CUDA", "mps": "mps"}
_GENERATORS: Final = {"cpu": "the Mersenne Twister", "cuda": "CUDA's Philox", "mps": "Metal's Philox"}
_MOST_NAMES: Final = 6  # operators of one block
_LEAST: Final = 0.001  # per cent that are shown

_REASONS: Final = {
    Cause.RANDOM: "different random streams",
    Cause.AUTOCAST: "autocast casts to different dtypes",
    Cause.DTYPE: "different dtypes",
    Cause.NUMBER: "different results from the same inputs",
    Cause.SIZES: "results of different sizes",
    Cause.CHOICE: "rounding changes a choice",
    Cause.BRANCH: "different paths through the program",
    Cause.DATA: "different data from outside torch",
    Cause.GROWN: "accumulated rounding",
}


def name_of(side: Side) -> str:
    """What a sentence calls a run."""
    return _DEVICES.get(side.name, side.name)


def reason(divergence: Divergence) -> str:
    """The cause in a few words."""
    return _REASONS[divergence.cause]


def verdict(found: Comparison) -> str:
    """A sentence or two: whether they agree, or where they first diverge and why."""
    failed = [side for side in found.sides if side.ending.error]
    if not found.is_used:
        unused = next(side for side in found.sides if side.name != "cpu" and not side.is_used)
        return f"Nothing ran on {unused.name}: both runs computed on the CPU, so this says nothing about {unused.name}."
    if found.first is not None:
        where = place(found.first.call.site)
        more = f" The script then fails on {name_of(failed[0])}." if failed else ""
        at = " ".join(filter(None, [step(found, found.first.call, "in "), f"at {where}" if where else ""]))
        return f"The runs diverge {at}: {reason(found.first)}.{more}"
    if failed:
        return f"The script fails on {name_of(failed[0])} but not on {name_of(_other(found, failed[0]))}."
    if not found.losses_agree:
        return f"The losses diverge by up to {at_most(found.largest_difference)}, although no compared call does."
    if found.rounding.compared and found.rounding.same == found.rounding.compared:
        bound = f"all results from the same inputs are bit-identical ({found.rounding.compared:,} compared)"
    elif found.rounding.share:
        bound = f"no difference exceeds {at_most(found.rounding.share)} of the rounding bound"
    else:
        bound = "no difference exceeds the rounding bound"
    losses = ""
    if found.losses:
        most = found.largest_difference
        losses = "; the losses are identical" if not most else f"; the losses differ by at most {at_most(most)}"
    return f"The runs agree: {bound}{losses}.{_on_both(found)}"


def _on_both(found: Comparison) -> str:
    """How much an agreement of two releases' kernels says; empty for other comparisons."""
    if not found.has_releases:
        return ""
    first, second = (side.name for side in found.sides)
    if not found.by_kernels.both:
        return f" No call ran on both {first} and {second}, so this says nothing about them."
    return f" {found.by_kernels.both:,} of {text.plural(found.compared, 'call')} ran on the kernels of both releases."


def _other(found: Comparison, side: Side) -> Side:
    return next(other for other in found.sides if other is not side)


def percent(share: float) -> str:
    """`0.84 %`, `<0.001 %`."""
    return text.share(share, _LEAST)


def at_most(share: float) -> str:
    """`0.84 %`, and `0.001 %` for what is smaller, in a sentence that names a bound."""
    return percent(max(share, _LEAST / 100))


def place(site: Site) -> str:
    """`train.py:12`; empty if the line is unknown."""
    return f"{text.clean(site.file.rpartition('/')[2])}:{site.line}" if site.line else ""


def step(found: Comparison, call: TracedCall, lead: str = "") -> str:
    """`step 3`, after `lead`; empty for a program without an optimizer."""
    return f"{lead}{step_name(call.step)}" if any(side.ending.steps for side in found.sides) else ""


def short(call: TracedCall) -> str:
    """`bernoulli_`, as torch's documentation writes it."""
    return call.operator.split(".")[1] if call.operator.startswith("aten.") else call.operator


def operators(calls: Sequence[TracedCall]) -> str:
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


def difference(divergence: Divergence) -> str:
    """The difference: `0.012, 0.84 % of the largest value; rounding explains at most 2.4e-06`."""
    if divergence.one is None or divergence.other is None:
        return ""
    if divergence.one.shape != divergence.other.shape:
        return "different shapes"
    if not math.isfinite(divergence.difference):
        return "NaN or infinity in one run only"
    if not divergence.difference:
        return "none in the values compared"
    words = f"{divergence.difference:.3g}, {percent(divergence.relative)} of the largest value"
    return f"{words}; rounding explains at most {divergence.allowed:.2g}" if divergence.cause is Cause.NUMBER else words


def why(found: Comparison, divergence: Divergence) -> str:
    """What happens, in a sentence or two."""
    return _WHYS[divergence.cause](found, divergence)


def _random(found: Comparison, divergence: Divergence) -> str:
    names = [_GENERATORS.get(side.facts.get("device", ""), side.name) for side in found.sides]
    said = f"With the same seed, `{short(divergence.call)}` draws different numbers on each device"
    if divergence.call.with_generator:
        return f"{said}: the script passes a generator that belongs to the device."
    return f"{said}: {names[0]} on {name_of(found.sides[0])}, {names[1]} on {name_of(found.sides[1])}."


def _autocast(found: Comparison, divergence: Divergence) -> str:
    parts = []
    for side, calls in zip(found.sides, (divergence.left, divergence.right), strict=True):
        dtype = _computed_in(calls[-1])
        own = next((call.autocast for call in calls if call.autocast), "")
        is_on = f"autocast to {own}" if own else "no autocast"
        parts.append(f"in {dtype} on {name_of(side)} ({is_on})")
    said = f"`{short(divergence.call)}` runs {parts[0]} and {parts[1]}."
    known = found.lists.get(divergence.call.name)
    if known is not None:
        release = found.sides[1].facts.get("torch", "")
        on = listed(known.devices)
        off = " or ".join(device for device in ("cpu", "cuda", "mps") if device not in known.devices)
        said += f" In torch {release}, `{known.name}` is on the autocast lists of {on}" + (
            f", but not of {off}." if off else "."
        )
    return said


def _computed_in(call: TracedCall) -> str:
    floats = [value.sketch.dtype for value in (*call.inputs, *call.results) if value.sketch.is_floating]
    names = list(dict.fromkeys(floats))
    return names[0] if len(names) == 1 else f"{names[0]} with a {names[-1]} result" if names else "integer arithmetic"


def _dtype(found: Comparison, divergence: Divergence) -> str:
    parts = [
        f"in {_computed_in(calls[-1])} on {name_of(side)}"
        for side, calls in zip(found.sides, (divergence.left, divergence.right), strict=True)
    ]
    dtypes = {value.sketch.dtype for call in divergence.left for value in (*call.inputs, *call.results)}
    wide = dtypes & {"float64", "complex128"}
    more = " The mps device has no float64, so the script or a library converts to float32 there." if wide else ""
    return f"`{short(divergence.call)}` runs {parts[0]} and {parts[1]}.{more}"


def _in_pieces(found: Comparison, divergence: Divergence) -> str:
    if [call.name for call in divergence.left] == [call.name for call in divergence.right]:
        return ""
    first, second = (name_of(side) for side in found.sides)
    return f" It runs as {operators(divergence.left)} on {first} and as {operators(divergence.right)} on {second}."


def _kernel(found: Comparison, divergence: Divergence) -> str:
    said = (
        "The inputs are the same, but the results differ by more than rounding explains: "
        f"{_whose(found, divergence)}.{_in_pieces(found, divergence)}"
    )
    by_release: dict[str, list[Hazard]] = {}
    for fault, release in _faults(found, divergence):
        by_release.setdefault(f"torch {release}" if _names_release(found) else "this release", []).append(fault)
    for release, faults in by_release.items():
        names = " and ".join(f"{fault.id}, {fault.title}" for fault in faults[:3])
        said += f" Known {'bugs' if len(faults) > 1 else 'bug'} of `{divergence.call.name}` in {release}: {names}."
    return said


def _whose(found: Comparison, divergence: Divergence) -> str:
    """Which code computed the two results."""
    by = [any(call.by_kernel for call in calls) for calls in (divergence.left, divergence.right)]
    if not found.has_releases or not any(by):
        return "the two kernels compute different values"
    first, second = (side.kernels_torch for side in found.sides)
    if all(by):
        return f"the kernels of torch {first} and torch {second} compute different values"
    own, other = (first, second) if by[0] else (second, first)
    return (
        f"the kernel of torch {own} and this machine's CPU compute different values. It is not known how torch {other} "
        "launches its kernel for this call, so the CPU computed it there"
    )


def _faults(found: Comparison, divergence: Divergence) -> list[tuple[Hazard, str]]:
    """Known bugs that the calls meet, each with the release whose code computed a result of the divergence.

    On Metal kernels, that is the kernels' release; this machine's CPU has none of the faults. One that both results
    have explains no difference.
    """
    met = [
        (side.kernels_torch or side.facts.get("torch", ""), {fault for call in calls for fault in call.faults})
        for side, calls in zip(found.sides, (divergence.left, divergence.right), strict=True)
        if any(call.by_kernel for call in calls) or not (side.facts.get("virtual") or side.kernels_torch)
    ]
    everywhere = set.intersection(*(ids for _, ids in met)) if len(met) > 1 else set()
    known = [fault for fault in all_hazards() if not fault.is_slow]
    return [(fault, release) for release, ids in met for fault in known if fault.id in ids - everywhere]


def _names_release(found: Comparison) -> bool:
    """Whether `this release` would be unclear: kernels of another release than the installed torch's take part."""
    installed = found.sides[1].facts.get("torch", "").partition("+")[0]
    return found.has_releases or any(side.kernels_torch not in ("", installed) for side in found.sides)


def _sizes(found: Comparison, divergence: Divergence) -> str:
    shapes = [tuple(sketch.shape) if sketch else () for sketch in (divergence.one, divergence.other)]
    return (
        f"`{short(divergence.call)}` returns shape {shapes[0]} in one run and {shapes[1]} in the other: the size "
        "depends on the data."
    )


def _choice(found: Comparison, divergence: Divergence) -> str:
    said = f"The inputs of `{short(divergence.call)}` differ only by rounding, which is enough to change its choice."
    return said + _began(found)


def _branch(found: Comparison, divergence: Divergence) -> str:
    sides = []
    for side, calls in zip(found.sides, (divergence.left, divergence.right), strict=True):
        lines = list(dict.fromkeys(filter(None, (place(call.site) for call in calls))))
        if lines:
            sides.append(f"{text.plural(len(calls), 'call')} at {', '.join(lines[:4])} on {name_of(side)}")
    said = "One run executes lines that the other does not: " + "; ".join(sides) + "."
    if found.decided is not None:
        one, other = found.decided
        values = f"{_number(one.value)} on {name_of(found.sides[0])} and {_number(other.value)} on "
        said += f" The last value read before that, at {place(one.site)}, is {values}{name_of(found.sides[1])}."
    else:
        said += " The values read before that are the same, so the script or a library branches on the device."
    return said


def _data(found: Comparison, divergence: Divergence) -> str:
    if divergence.one is not None and divergence.one.dtype.startswith("Python"):
        return (
            f"`{short(divergence.call)}` gets a different number in each run, and no tensor that the script reads "
            "before differs: the number comes from a clock, a file, `os.urandom` or another source that the seeds do "
            "not cover, or depends on the device."
        )
    return (
        f"`{short(divergence.call)}` gets different inputs in each run, and no torch call produced them: they come "
        "from a file, a clock, NumPy or another source that the seeds do not cover."
    )


def _grown(found: Comparison, divergence: Divergence) -> str:
    return (
        "No call computes a wrong result. Rounding differences accumulate, and here they exceed what PyTorch's tests "
        f"of mps allow.{_began(found)}"
    )


def _began(found: Comparison) -> str:
    """Where rounding first made a difference."""
    first = found.rounding.first
    if first is None:
        return ""
    call = first.right[-1]
    order = "each release's own order" if found.has_releases else "a device-specific order"
    sums = f", which sums {call.bound.terms:,} values in {order}" if call.bound.kind == "sum" else ""
    where = place(call.site)
    return f" The first difference comes from `{short(call)}`" + (f" at {where}" if where else "") + f"{sums}."


_WHYS: Final = {
    Cause.RANDOM: _random,
    Cause.AUTOCAST: _autocast,
    Cause.DTYPE: _dtype,
    Cause.NUMBER: _kernel,
    Cause.SIZES: _sizes,
    Cause.CHOICE: _choice,
    Cause.BRANCH: _branch,
    Cause.DATA: _data,
    Cause.GROWN: _grown,
}

_ADVICE: Final = {
    Cause.RANDOM: "To see what else differs, run `anymps compare --random cpu`. To train on the same numbers, draw "
    "them on the CPU and move them: `torch.rand(shape, generator=torch.Generator().manual_seed(0)).to(device)`.",
    Cause.AUTOCAST: "Exclude the line from autocast on all devices: `with torch.autocast(device.type, "
    "enabled=False):`, with `x.float()` as input.",
    Cause.DTYPE: "Convert on both devices: `x.float()` where the tensor is created.",
    Cause.NUMBER: "Run the call alone on both devices with the same inputs. If the other device is right, use a "
    "different operator for the line, or compute it on the CPU: `x.cpu()`.",
    Cause.SIZES: "Check the comparison or the mask that determines the size.",
    Cause.CHOICE: "Nothing is wrong: both choices are correct within rounding. Compare the losses over several seeds "
    "instead.",
    Cause.BRANCH: "",
    Cause.DATA: "Seed the source, or read it once and save the data to a file.",
    Cause.GROWN: "No single call is wrong. Compare the losses over several seeds: they vary as much on one device.",
}


_NO_GENERATOR: Final = {
    ("bernoulli", "native_dropout"): " Dropout takes no generator: compare with `p=0` or in `eval()` mode.",
    (
        "multinomial",
        "normal",
    ): " A distribution takes no generator: give it parameters on the CPU, and move its samples.",
}
"""By what draws them: random numbers for which a script cannot pass a generator."""

_WHICH_IS_RIGHT: Final = (
    "To see which release is right, compare its numbers with the CPU's: `anymps run --kernels {0} --check-numbers` and "
    "`--kernels {1}`."
)


def advice(found: Comparison, divergence: Divergence) -> str:
    """What to do; empty where that depends on the program."""
    if len({call.autocast for call in (*divergence.left, *divergence.right) if call.autocast}) > 1:
        return "Use the same dtype on both devices: `torch.autocast(device.type, dtype=torch.bfloat16)`."
    faults = _faults(found, divergence) if divergence.cause is Cause.NUMBER else []
    if faults:
        return f"If this is the known bug: {faults[0][0].fix}"
    if divergence.cause is Cause.NUMBER and found.has_releases:
        return _WHICH_IS_RIGHT.format(*(side.kernels_torch for side in found.sides))
    said = _ADVICE[divergence.cause]
    if divergence.cause is Cause.RANDOM and not divergence.call.with_generator:
        said += next((more for names, more in _NO_GENERATOR.items() if divergence.call.name in names), "")
    return said


def first_rounding(found: Comparison, rounding: Rounding) -> str:
    """Where the first bits differ within the bound: `train.py:10, mm, call 3: 1.2e-05 % of the largest value`."""
    assert rounding.first is not None
    call = rounding.first.right[-1]
    where = (place(call.site), short(call), step(found, call), f"call {call.number + 1:,}")
    return f"{', '.join(filter(None, where))}: {percent(rounding.relative)} of the largest value"


def facts(side: Side) -> str:
    """The run in one line: `torch 2.13.0, M3 Pro 18GB, 320 calls in 6 steps`."""
    known = side.facts
    words = [f"torch {known['torch']}" if known.get("torch") else "", known.get("mac", "")]
    words += ["on an NVIDIA GPU"] if known.get("substrate") == "cuda" else []
    steps = f" in {text.plural(side.ending.steps, 'step')}" if side.ending.steps else ""
    words.append(f"{text.plural(side.calls, 'call')}{steps}")
    if side.kernels_torch:
        words.append(f"{side.kernel_calls:,} of them by the Metal kernels of torch {side.kernels_torch}")
    words += ["ended early"] if side.ending.is_cut else []
    return ", ".join(filter(None, words))
