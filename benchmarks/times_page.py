"""docs/accuracy.md from the figures of the fit."""

# ruff: noqa: E501  (the lines of the page are as long as those of the other pages)

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from times_fit import Row

READ = "22 to 24 November 2026"
"""When the public timings were read."""

HEAD = """\
# How good predicted times are

`anymps.cost` predicts how long an operator, or a step of many, takes on a Mac. This page says what such a number is worth. It is written by
`python benchmarks/fit_times.py` from the timings in `benchmarks/times/`, public ones read on {read}; no Mac was used.

```python
from anymps import parse_mac
from anymps.cost import OperatorCall, predict_operator

call = OperatorCall("aten::mm", ("float32[2048, 2048]", "float32[2048, 2048]"), ("float32[2048, 2048]",))
time = predict_operator(call, parse_mac("M4 Max 64GB"), torch="2.13")
print(time.device, time.low, time.high, time.bound)  # seconds, their 80 % interval, what decides
```

`predict_step` takes a list of calls. Operators and tensors are written as a recording has them.

Every report of a run says how long the typical step would take on the chosen Mac, and what binds it. JSON has it as `predicted_step`, and
`anymps.forecast.forecast` gives it for any Mac. If less than nine tenths of the step's calls have a predicted time, there is no number, and
none where data loading or paging decide. The report says why, and names the operators that miss one.

## Operators on a Mac that was not timed

For each chip the coefficients were fitted to the timings of all others. The error is |predicted / measured - 1|.

| what was predicted | timings | median error | nine tenths are within | within 50 % |
| --- | ---: | ---: | ---: | ---: |
"""

MIDDLE = """
Most timings hold one wait for the GPU. What a wait takes differs up to four times between tables of timings, and it says nothing of an
operator. So that one number is taken from the table itself, and a timing of which the wait is the larger part is not scored: {scored} of
{rows} are. The last line of the table has all of them, and predicts the waits as well.

**Aims, and what was reached.** The median of 18 % is {median_met}: {median}. Nine tenths within 50 % is {nine_met}: {half} are, and nine tenths are within {nine},
{nine_new} with torch 2.5 and later. What one chip alone was timed with (sorting, scans and softmax by PyTorch's own kernels, gradients of convolutions)
rests on its prior when that chip is left out: such a number says how good a guess was, not how good the prediction is now, and neither intervals nor their
share below count it. What is worse than the rest comes from few operators, named below: binary cross entropy, of which torch 2.1 and 2.2
have timings 20 times apart on chips of one generation; `argmax` and sums over the first axis; adding scatters, whose time depends on how
many indices are alike; and `sort` on an M1 Ultra. Convolutions were timed with permuted inputs and few channels only, their weights' gradients
on an M5 Pro, and those of their inputs not at all.

**PyTorch's own kernels.** Release by release PyTorch replaces graphs of Apple's MPSGraph by Metal kernels of its own, which read and write
memory in another way. Gathers, scatters, sorts, scans, `argmax`, reductions, softmax and norms have a factor of their own from the release on
that has the kernel; pointwise operators and copies are bound by the memory either way. The pull requests that say what a kernel gained are in
the table of sources. For gathers and norms there is only a ratio or a judgement, as `benchmarks/times_fit.py` says.

**80 % intervals.** They are the 10 % and 90 % quantiles of timings of which neither the chip nor the shapes were in the fit, with torch 2.5
and later, of all classes but those that are hard to predict: {small[0]:g} to {small[1]:g} times the prediction below 1 ms, {large[0]:g} to {large[1]:g} times above. With the quantiles of the
other chips {held} of a chip's timings lie inside; the aim is 75 to 85 %.
Faster caches were tried as a part of the formula, and predicted no better.

A class that is harder to predict than the others has a wider interval (sorts, `argmax`, losses, adding scatters, sums over the first axis), and so have one with fewer than five timings and half types on M5,
which one machine was timed with.

## By class

| class | timings | scored | median error | nine tenths are within |
| --- | ---: | ---: | ---: | ---: |
"""

AFTER_CLASSES = """
A class without timings rests on what is known of its like, and its interval says so. Those are {bare}.

## By chip

| chip left out | scored | median error | nine tenths are within |
| --- | ---: | ---: | ---: |
"""

TAIL = """
## Steps of models

No step is in the fit: each of these was predicted from the timings of single operators alone. The calls come from the models themselves
(`benchmarks/record_steps.py`), with random weights.

| model | Mac | torch | measured | predicted | 80 % interval | held | bound by |
| --- | --- | --- | ---: | ---: | ---: | --- | --- |
{step_rows}
The median error is {step_median} (aim: 20 %), and {step_half} are within 50 % (aim: 85 %), of {step_count} steps of {step_models} models.

An interval goes by what binds the step: {gpu[0]:g} to {gpu[1]:g} times the prediction where the GPU decides, {host[0]:g} to {host[1]:g} where the host does, in
proportion where both do. Eight tenths of the steps above are no further off, upwards or downwards. The intervals that the steps of the other models alone give
hold {gpu_held} and {host_held}, together {all_held} (aim: 78 to 85 %). What a wait takes is known within {wait[0]:g} to {wait[1]:g} times, by tables of chips
that were left out, and widens the interval by its share of the step; `anymps bench --calibrate` replaces that by what your Mac takes. Classes that are hard
to predict widen it, too. The table's own steps are in its intervals, so it says nothing that they hold {step_held} of them.

With a star: a data loader fed the step, and nothing of that is predicted. What is far off has reasons. One image through ResNet-18 is less
work than any convolution that was timed. BERT with 512 tokens in inference is three times slower in its table than its training suggests.
A step of scVI is short, and most of it is Python code of its own, which is not known here. Why the GCN took three times as long on an M1 Pro as
on an M2 Ultra, its table does not say: both are mostly launches.

The convolutions that were timed had permuted inputs, and torch before 2.5 took up to three times as long for those. Plain ones are taken to be as
quick there as on later releases. That is judgement, and the steps of VGG and ResNet had a part in it.

A GRU is hundreds of calls with next to nothing to do, and their dispatch is all that it takes. PyTorch's own Metal kernels are dispatched in about
5 us on an M1, a graph of MPSGraph in 16 to 35 us. Which operators have a kernel of their own is known by release, from the names of the compiled
kernels in its macOS wheels. What a large GRU reads again and again stays in the cache, which is not predicted: it comes out too slow.

A step is walked with two clocks (`anymps.cost.walk_step`): the host dispatches every call, the device computes it, and where the host waits,
both meet. The calls of these steps are known without their order and without the program's own code, so its waits stand at the end. From a
recording, the gaps between its calls count too, scaled to the Mac's CPU by the speed of the recording machine's core, which is measured when a recording
begins: a hundredth of a second of sorting. What that takes an M1 is judgement, as no Mac was timed: 0.65 of what it takes an AMD EPYC.
`predict_step` has a closed form for calls without an order, `(host^4 + device^4)^(1/4)` plus waits; here the two differ by less than a tenth.
Paging and what the first step compiles are not in it: its graphs are counted, and no public timing tells how long one takes.

## The ratio between two Macs

Part of what is wrong with a prediction is wrong on all Macs alike, and goes out of the ratio of two times; the rest of both adds up. So
`speed_ratio` of two steps is scored for itself and has its own interval, which `anymps plan --against` shows: a factor of {off:g} either way,
wider for classes whose ratios are hard to predict (convolutions, gathers and scatters, `sort`, `argmax`, sums over the first axis). It comes from timings of the same calls on two chips
by the same release of torch, 2.5 or later: {pairs} pairs on {chips} chips, predicted by fits that saw neither the chip nor these shapes on any machine.
The median error of such a ratio is {ratio_median}, and eight tenths are within {ratio_eight}; of the times in these pairs it is {times_median}, and eight
tenths are within {times_eight}. With an interval from pairs in which neither chip is, {ratio_held} of the pairs are held; the aim is 75 to 85 %.

The steps above that were timed on two Macs by one release are in no part of that. They are few, and of older releases:

| model | Macs | measured | predicted | 80 % interval | held |
| --- | --- | ---: | ---: | ---: | --- |
{ratio_rows}
The median error is {step_ratio_median}, that of the times of the same steps {pair_median}: so few steps do not show that ratios are better known. {step_ratio_held} are
held, by intervals that span a factor of {span_ratios:.1f} from end to end; those of the times span {span_times:.1f}. What misses is the GCN, of which one time misses too.

## What is not predicted

An operator without a class, a product of matrices of integers or complex numbers, a call that runs on the CPU, and a Mac whose GPU clock is
not public (MacBook Neo) have no number: `predict_operator` raises `CostError` and says why, `predict_step` counts such calls in `left_out`.
A recording tells how a call's inputs lie and along which axes it works. Without that, in one of an earlier version or in a call that you write
down, the usual case is taken: inputs without permuted strides, and of two axes of the same size the last one is reduced. A kernel that
`torch.compile` fused is taken to read or write each of its buffers once, as an elementwise one does, which is judgement;
a Metal kernel of your own has no class. Laptops that are hot run up to a third slower, and nothing here knows that.

## Sources

| timings | torch | chips | source |
| ---: | --- | --- | --- |
"""


def page(data: dict[str, Any], rows: list[Row]) -> str:
    """The whole page; `data` is what `coefficients.json` holds."""
    found = data["accuracy"]
    overall, new = found["all"], found["torch 2.5 and later"]
    lines = [HEAD.format(read=READ)]
    for name, title in (
        ("all", "**all that were scored**"),
        ("on several chips", "of these, kernels that several chips were timed with"),
        ("on one chip", "kernels that one chip alone was timed with"),
        ("torch 2.5 and later", "torch 2.5 and later"),
        ("torch 1.13 to 2.4", "torch 1.13 to 2.4"),
        ("below 1 ms", "timings below 1 ms"),
        ("1 ms and above", "timings of 1 ms and above"),
        ("shapes left out too", "shapes left out as well as the chip"),
        ("shapes left out too, torch 2.5 and later", "the same, torch 2.5 and later"),
        ("wait predicted too", "every timing, its wait predicted too"),
    ):
        one = found[name]
        lines.append(
            f"| {title} | {one['rows']} | {percent(one['median'])} | {percent(one['nine_tenths'])} | "
            f"{percent(one['within_half'])} |\n"
        )
    lines.append(
        MIDDLE.format(
            scored=found["scored"],
            rows=found["rows"],
            median=percent(overall["median"]),
            median_met="reached" if overall["median"] <= 0.18 else "not reached",
            half=percent(overall["within_half"]),
            nine=percent(overall["nine_tenths"]),
            nine_met="reached" if overall["within_half"] >= 0.9 else "not reached",
            nine_new=percent(new["nine_tenths"]),
            small=data["intervals"]["below 1 ms"],
            large=data["intervals"]["1 ms and above"],
            held=percent(found["held"]),
        )
    )
    for name, timings in data["rows"].items():
        if timings:
            one = found["class"].get(name)
            scored = f"{one['rows']} | {percent(one['median'])} | {percent(one['nine_tenths'])}" if one else "0 | - | -"
            lines.append(f"| {name.replace('_', ' ')} | {timings} | {scored} |\n")
    bare = [name.replace("_", " ") for name, timings in data["rows"].items() if not timings]
    lines.append(AFTER_CLASSES.format(bare=", ".join(bare[:-1]) + " and " + bare[-1]))
    lines += [
        f"| {name} | {one['rows']} | {percent(one['median'])} | {percent(one['nine_tenths'])} |\n"
        for name, one in found["chip"].items()
    ]
    lines.append(TAIL.format(**step_intervals(data), **steps(found["steps"]), **ratios(data)))
    for source, count in Counter(row.source for row in rows).most_common():
        own = [row for row in rows if row.source == source]
        releases = sorted({row.torch for row in own}, key=lambda text: [int(n) for n in text.split(".")[:2]])
        stated = "" if all(row.torch_stated for row in own) else " (by date)"
        spread = releases[0] if len(releases) == 1 else f"{releases[0]} to {releases[-1]}"
        chips = ", ".join(dict.fromkeys(row.mac.chip.removeprefix("Apple ") for row in own))
        lines.append(f"| {count} | {spread}{stated} | {chips} | <{source}> |\n")
    lines.append(
        "\nThe sources of the steps stand in `benchmarks/times/steps.csv`. Where a source does not state the GPU cores, the commonest were taken (`cores_stated` in the file). A rate was turned "
        "into a time\nof that shape.\n"
    )
    return "".join(lines)


def steps(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The table of steps and what it comes to."""
    errors = sorted(abs(one["predicted"] / one["measured"] - 1) for one in found)
    held = sum(one["low"] <= one["measured"] <= one["high"] for one in found)
    rows = [
        f"| {one['tape'].replace('_', ' ').replace('-', ', ')}{'*' if one['loader'] else ''} | {one['mac']} | {one['torch']} | "
        f"{digits(one['measured'])} ms | {digits(one['predicted'])} ms | {digits(one['low'])} to {digits(one['high'])} | "
        f"{'yes' if one['low'] <= one['measured'] <= one['high'] else 'no'} | {one['bound']} |\n"
        for one in found
    ]
    return {
        "step_rows": "".join(rows),
        "step_median": percent(errors[len(errors) // 2]),
        "step_half": percent(sum(error <= 0.5 for error in errors) / len(errors)),
        "step_count": len(found),
        "step_models": len({one["tape"].partition("-")[0] for one in found}),
        "step_held": f"{held} of {len(found)}",
    }


def step_intervals(data: dict[str, Any]) -> dict[str, Any]:
    """What is said of the intervals of steps and of waits."""
    (gpu, of_gpu), (host, of_host) = (data["accuracy"]["steps held"][name] for name in ("GPU", "host"))
    return {
        "gpu": data["intervals"]["step, GPU"],
        "host": data["intervals"]["step, host"],
        "wait": data["intervals"]["wait"],
        "gpu_held": f"{gpu} of {of_gpu}",
        "host_held": f"{host} of {of_host}",
        "all_held": percent((gpu + host) / (of_gpu + of_host)),
    }


def ratios(data: dict[str, Any]) -> dict[str, Any]:
    """The section on ratios: its figures and its table."""
    found = data["accuracy"]["ratio"]
    pairs = found["steps"]
    rows = [
        f"| {one['tape'].replace('_', ' ').replace('-', ', ')} | {one['macs'][1]} against {one['macs'][0]} | {one['measured']:.2f} | "
        f"{one['predicted']:.2f} | {one['low']:.2f} to {one['high']:.2f} | "
        f"{'yes' if one['low'] <= one['measured'] <= one['high'] else 'no'} |\n"
        for one in pairs
    ]
    errors = sorted(abs(one["predicted"] / one["measured"] - 1) for one in pairs)
    held = sum(one["low"] <= one["measured"] <= one["high"] for one in pairs)
    compared = {(one["tape"], mac) for one in pairs for mac in one["macs"]}
    times = [one for one in data["accuracy"]["steps"] if (one["tape"], one["mac"]) in compared]
    off = sorted(abs(one["predicted"] / one["measured"] - 1) for one in times)
    spans = [sorted(one["high"] / one["low"] for one in group) for group in (times, pairs)]
    return {
        "off": data["intervals"]["ratio"][1],
        "pairs": found["pairs"],
        "chips": found["chips"],
        "ratio_median": percent(found["median"]),
        "ratio_eight": percent(found["eight_tenths"]),
        "times_median": percent(found["times_median"]),
        "times_eight": percent(found["times_eight_tenths"]),
        "ratio_held": percent(found["held"]),
        "ratio_rows": "".join(rows),
        "step_ratio_median": percent(errors[len(errors) // 2]),
        "step_ratio_held": f"{held} of {len(pairs)}",
        "pair_median": percent(off[len(off) // 2]),
        "span_times": spans[0][len(times) // 2],
        "span_ratios": spans[1][len(pairs) // 2],
    }


def digits(milliseconds: float) -> str:
    """Three digits, without an exponent."""
    return f"{milliseconds:.0f}" if milliseconds >= 100 else f"{milliseconds:.3g}"


def percent(share: float) -> str:
    """A share as people read it: `14 %`."""
    return f"{100 * share:.0f} %"
