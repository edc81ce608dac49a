"""docs/fidelity-times.md from the figures of the fit."""

# ruff: noqa: E501  (the lines of the page are as long as those of the other pages)

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from anymps.cost._coefficients import NEURAL

if TYPE_CHECKING:
    from times_fit import Row

READ = "22 to 29 November 2026"
"""When the public timings were read."""

HEAD = """\
# Predicted times: the tables

[How accurate predicted times are](accuracy.md) has the short answer. `python benchmarks/fit_times.py` writes this page from the public timings in
`benchmarks/times/`, which were read on {read}. No Mac was used.

## Operators on a Mac that was not timed

Each chip's timings are predicted by coefficients that were fitted to all other chips. The error is |predicted / measured - 1|.

| what was predicted | timings | median error | nine tenths are within | within 50 % |
| --- | ---: | ---: | ---: | ---: |
"""

MIDDLE = """
Most timings include one wait for the GPU. Between tables of timings, a wait differs by up to a factor of four, and it says nothing about an
operator. So the wait is taken from the table itself, and a timing that is mostly wait is not scored. That leaves {scored} of {rows} timings. The last
row scores all of them and predicts the waits as well.

**Goals and results.** The goal of a median of 18 % is {median_met}: it is {median}. The goal of nine tenths within 50 % is {nine_met}: {half} are within
50 %, and nine tenths are within {nine} ({nine_new} with torch 2.5 and later).

Some kernels were timed on one chip only: sorting, scans and softmax by PyTorch's own kernels, and gradients of convolutions. When that chip is left
out, their prediction is a guess made before any timing was seen. The score of such a guess says nothing about the prediction that ships, so the
intervals below leave these kernels out.

Few operators cause the largest errors:

- Binary cross entropy: with torch 2.1 and 2.2, its timings differ by a factor of 20 on chips of one generation.
- `argmax`, and sums over the first axis.
- `sort` on an M1 Ultra.

Convolutions were timed with permuted inputs and few channels only. The gradients of their weights were timed on an M5 Pro only, those of their inputs
only as part of a step.

**PyTorch's own kernels.** With each release, PyTorch replaces more graphs of Apple's MPSGraph with Metal kernels of its own, which access memory
differently. Gathers, scatters, sorts, scans, `argmax`, reductions, softmax and norms have a separate factor from the release that brought the kernel.
Pointwise operators and copies have none, as memory bandwidth limits them either way. The table of sources links the pull requests that state a
kernel's gain. For norms, only a judgement is known; `benchmarks/times_fit.py` says which. Indexing counts as rewritten since torch 2.8: an M1 Ultra
takes half of the time per core there that all chips take with torch 2.2 to 2.6.

**Adding scatters.** On M1 and M2, MPSGraph adds to one cache line at a time (`scatter_add` and `scatter_reduce` up to torch 2.12, `index_add` up to
2.13). An addition takes about 4.5 us there, which is read off four timings of an M1 Pro and an M1 Ultra, 3.7 to 5.9 us each. So the fewer places the
indices name, the longer the scatter takes. The places are taken to be all of the result, as their number is not recorded. Of one place, a million
additions end in a time-out on an M2 Max (pytorch issue 111173). Neither an M4 Pro nor PyTorch's own kernels show such waits.

**Strided copies.** A copy that takes each number from another row, as `permute(...).contiguous()` does if it moves the last axis, has a class of its
own. Beyond the cache, 64 bytes pass the memory for each number (pytorch pull request 193167). A copy in which the last axis stays is a plain one.

**Half types on M5.** The neural accelerators need long sums: at an inner size of {neural_depth:.0f} they reach half of {neural:g} times the rate of the ALUs.
Short sums, as in attention or in small layers, gain less than two.

**80 % intervals.** An interval reaches from {small[0]:g} to {small[1]:g} times the prediction below 1 ms, and from {large[0]:g} to {large[1]:g} times above. These are the 10 % and
90 % quantiles of timings with torch 2.5 and later, without the classes that are hard to predict. Each timing counts twice: predicted by a fit that had
not seen its chip or its shapes, and by one that had not seen its source. Intervals from the other sources hold {held} of a source's timings with torch
2.5 and later; the goal is 78 to 84 %. A formula with faster caches predicted no better.

Two things widen an interval: a class that is hard to predict (sorts, `argmax`, losses, sums over the first axis), and a class with fewer than five
timings.

## By class

| class | timings | scored | median error | nine tenths are within |
| --- | ---: | ---: | ---: | ---: |
"""

AFTER_CLASSES = """
A class without timings borrows from similar classes and has a wider interval. These classes have none: {bare}.

## By chip

| chip left out | scored | median error | nine tenths are within |
| --- | ---: | ---: | ---: |
"""

TAIL = """
## Steps of models

Each step was predicted by a fit that saw no step of its model and no timing from the same source. Only steps with gradients of convolutions are part
of any fit, because hardly anyone timed these gradients alone: what remains of such a step, less all that is known, is theirs. All other steps are
predicted from the timings of single operators alone. `benchmarks/record_steps.py` recorded the
models themselves, with random weights; `benchmarks/kornia_steps.py` recorded Kornia's filters, warps and augmentations. Like the recording of a script,
these hold the calls in their order and the program's own code between them. A time of Kornia's is left out if its interquartile range is more than a
quarter of the median. Kornia's M1 and M4 were timed ten days apart, and `ColorJiggle` changed in between, so it has two recordings.

| model | Mac | torch | measured | predicted | 80 % interval | held | bound by |
| --- | --- | --- | ---: | ---: | ---: | --- | --- |
{step_rows}
Over {step_count} steps of {step_models} models, the median error is {step_median} (goal: 15 %), and {step_half} are within 50 % (goal: 90 %).
The median is {other_median} for the {other_count} steps that are not Kornia's, and {kornia_median} for Kornia's. By the load that Kornia notes, both of its Macs were busy.
"Held" means that the measured time is inside the interval. A star means that a data loader fed the step; its time is not predicted.

**Intervals.** What limits a step decides its interval: {gpu[0]:g} to {gpu[1]:g} times the prediction if the GPU does, {host[0]:g} to {host[1]:g} times if the host does, and in
between if both do, apart from what waits and classes add. They are as wide as it takes for intervals from the steps of other models and other
sources alone to hold eight tenths: these hold {gpu_held} (GPU) and {host_held} (host), together {all_held} (goal: 78 to 84 %). The intervals in the table are made from its own steps, so
it proves nothing that they hold {step_held}.

Three things widen the interval of a step, each by its share of the step: classes that are hard to predict, classes of which the Mac's chip has no
timing, and waits. Timings of single operators show the second: those on a chip that was left out are off by more than those of other shapes on a chip
that was not, as much as a spread of {new_chip:g} (in logarithms, added as squares) makes. Tables of chips that were left out show that a wait takes
{wait[0]:g} to {wait[1]:g} times as long as predicted.

**The host's time.** A call takes the host the program's own code before it, as recorded: Python, `torch.nn` and autograd. To that comes the dispatch,
as timings of single operators have it. Those contain 0.9 us of Python and torch too (pytorch issue 148219, on an M1 Pro), which count once. In the same
row of calls, a recording finds 0.8 to 1.3 us of own code before each.

The graph of a convolution or of a batch or layer norm counts as two dispatches. A batch norm takes 32 us where a kernel of PyTorch's own takes 3.4 (pytorch
pull request 183830). A convolution takes 29 to 34 us on an M5 Pro (193021), the graph of a cumulative sum 12 (185609). The gradients of a linear layer
or a convolution are two graphs: one for the input and one for the weight. That own code adds to the dispatch, and that those graphs count twice, was
chosen knowing the rows of the table. No factor is fitted to them: with the longer of dispatch and own code in place of their sum, training steps would need
dispatches that take 1.3 times as long.

**Timings predicted before they were known.** Twenty-nine timings were found after the coefficients had been released. They were predicted
with these coefficients before any fit saw them, and are in the tables since:

| timings | measured / predicted | held |
| --- | --- | --- |
| U-Net of a diffusion model, 128 pictures, training, torch 2.10, M1 Max and M4 | 2.30, 1.23 | 1 of 2 |
| nanoGPT on letters, training, torch 2.0, M1 Pro | 1.18 | 1 of 1 |
| perceptron on MNIST, batches of 256, 512 and 4096, training, torch 2.1, M1 | 1.37, 1.03, 1.15 | 2 of 3 |
| SGD on 500 tensors, torch 2.4, M1 Max | 1.34, 1.35, 1.11 | 1 of 3 |
| five large matrix products, torch 2.3, M3 Max | 1.00 to 1.29 | 5 of 5 |
| attention through MPSGraph, torch 2.12, M5 Pro and M4 | 1.63 to 2.53 | 0 of 12 |
| attention by PyTorch's own kernel, with a mask, torch 2.13, M5 Pro | 0.61 to 0.63 | 0 of 3 |

The steps have a median error of 19 %, eight of nine are within 50 %, and five are held; all nine took longer than predicted. Attention was off. The
reasons are in PyTorch's code and became terms without a fitted number (see below), so what the tables say of these timings is no test of that kind
any more. Not counted are nanoGPT with words (its M2 may be any of three; 0.6 times the prediction for the smallest), and products on the M3 Max that
were timed while the GPU's clock still rose.

**Large errors.** The U-Net of a diffusion model takes twice as long on an M1 Max as predicted, on an M4 as long as predicted. One image through
ResNet-18 is less work than any convolution that was timed. BERT inference with 512 tokens takes three times as long in its table as its training
suggests. The GCN took three times as long on an M1 Pro as on an M2 Ultra; its table does not say why. Two times of Kornia are unexplained: `canny`
takes up to twice as long as predicted for 32 pictures, and `get_perspective_transform` takes 23 us a call on the M1, where the M4 needs 7. Both Macs
were busy with something else too, by the load that Kornia notes.

**Waits.** With torch 2.9 and macOS 26.5, the same script waits about 0.38 ms for the GPU of an M1 and 0.13 ms for that of an M4. So chips from M4 on
have a factor of their own. A release of torch makes no difference: tables of one release differ by more than those of two. With a wait for each
release, the last row of the first table would be 22 %. A copy that blocks takes one wait and little more: 110 to 119 us in all on an M4 Pro, for up
to 1 MB. What a copy moves beyond 1 MB is assumed to pass at 7 GB a second, as tensors from a file in the cache do on an M5 Pro (safetensors pull
request 756).

**Convolutions.** Those that were timed had permuted inputs, which took torch before 2.5 up to three times as long. Plain inputs are assumed to be as
fast there as in later releases. Before torch 2.5, all cores are assumed to share the sum in the gradient of a small weight. Both are judgements: the
steps of VGG and ResNet-18 influenced the first, those of the CIFAR ResNets the second. What a convolution makes is contiguous before 2.5 and laid out like
its input from 2.5 on (pytorch pull request 128393). So with `--torch 2.1`, a script with `channels_last` has permuted inputs in its first convolution only.

**Attention.** Without gradients, attention is one graph of MPSGraph from torch 2.5 on (pytorch pull request 131362). It is predicted as two products and
the softmax between them. Since torch 2.9 the graph also looks for rows that may see nothing (178545), which takes three more passes over the scores in
float32. Since 2.13 a kernel of PyTorch's own keeps the scores on the GPU if the heads are 32, 64, 72, 80, 96, 128 or 256 wide (181575): it is predicted
as two products of float32. The passes and the precision are read off PyTorch's code and not fitted; with them, the attention timings above are 0.78 to
1.21 times the prediction. A recording does not say that attention is causal, and the kernel then skips half of the work.

**Group norms.** Until torch 2.12, Python runs a group norm as nine other operators on mps, and its gradient as 28. So they are predicted as these.

**GRUs.** A GRU is hundreds of calls that do very little, so dispatch takes nearly all of its time. On an M1, a Metal kernel of PyTorch's own is
dispatched in about 5 us, a graph of MPSGraph in 21 to 35 us. The names of the compiled kernels in the macOS wheels tell which operators have a kernel
in which release. What a large GRU reads repeatedly stays in the cache, and C++ dispatches its calls faster than Python does. The prediction models
neither: it is up to 1.5 times as long as measured on an M1, and twice as long on an M2 with torch 2.4.

**Few rows.** Up to 16 rows, as in a GRU or for one token of a language model, MPS multiplies without the tiles of its large products (pytorch issue
189847). Such a product is assumed to read its tensors at three quarters of the memory's bandwidth. No timing of one alone is public; Mistral-7B in
float16 makes 7.7 tokens a second on an M5, which amounts to that. One token behind 990 others takes 173 ms there.

**How a step is predicted.** Two clocks go through the step (`anymps.cost.walk_step`). The host dispatches every call, the device computes it, and both
meet where the host waits. The waits of a benchmark that its recording lacks, such as one for the loss, come at the step's end. That there is a single
wait was decided knowing these rows. Paging and the compilation in the first step are not included.

The gaps between calls are scaled to the Mac's CPU by the speed of the recording machine's core,
which is measured after steps: it multiplies large integers and sorts a list. An M1's core is assumed to be 1.7 times as fast as an Intel Xeon's. This
is a judgement, since no Mac was timed. The recordings of the steps above were made while nothing else ran, apart from those of the U-Net of a
diffusion model, nanoGPT on letters, the perceptron and SGD alone. Without the gaps, the mean error of training steps would be a quarter larger.

**The first step.** A report counts the graphs that the first step compiles, and says how long that takes: 2.5 ms for each on an M2 Pro, or 1.9 to 5.8.
The figures come from [a log](https://github.com/dharvpat/pytorch-PRs/blob/a3a7b9d/GCache-Issues/baseline.json) of nine small networks with a build of
torch 2.10. It has the time of each first step, and how many graphs the cache held after it. The number is rough, as this is one log of one Mac.
[Another](https://github.com/simonw/public-notes/issues/11), of early 2023, suggests more: nanoGPT's first iteration, with two evaluations in it, took
2.6 s on an M2. Compiling is assumed to slow down as much as a Mac's CPU is slower, which is a judgement.

**LSTMs.** MPS computes an LSTM as one graph. It is predicted as the products and pointwise kernels of its layers and steps. The number of pointwise
kernels is a judgement that was made knowing the LSTM in the table, so that row proves nothing.

## The ratio between two Macs

An error that all Macs share cancels in the ratio of two times, while the other errors add up. So `speed_ratio` of two steps is scored separately and
has its own interval, which `anymps plan --against` shows. It is a factor of {off:g} either way, and more for classes whose ratios are hard to predict:
convolutions, gathers and scatters, `sort`, `argmax`, and sums over the first axis.

Two Macs with the same chip and GPU cores have the same prediction, so their ratio is 1, and its interval is a factor of {one_chip:g}. This is a
judgement from the five pairs of timings that two people made on such Macs: four large products on an M4 Max differ by 4 % at most, a training step of
VGG on an M1 Max by 11 %, with two releases of torch. What waits add to the interval stays. Chips of one generation have no interval of their own:
eight tenths of their {pairs_one_generation} pairs are within {one_generation}, of pairs from two generations within {two_generations}.

The interval comes from timings of the same calls on two chips with the same release of torch, 2.5 or later. There are {pairs} pairs on {chips} chips,
predicted by fits that saw neither the chip nor these shapes on any machine. The median error of such a ratio is {ratio_median}, and eight tenths are within
{ratio_eight}. The times in these pairs have a median error of {times_median}, and eight tenths are within {times_eight}. Intervals from pairs without either chip hold
{ratio_held} of the pairs; the goal is 75 to 85 %.

Some steps of the table above were timed on two Macs with one release. They are few and of older releases, so they are not part of this score:

| model | Macs | measured | predicted | 80 % interval | held |
| --- | --- | ---: | ---: | ---: | --- |
{ratio_rows}
The median error of these ratios is {step_ratio_median}, that of the times of the same steps is {pair_median}. So these steps do not show that ratios are more accurate. The
intervals hold {step_ratio_held} ratios. They span a factor of {span_ratios:.1f} from end to end, those of the times {span_times:.1f}.

## What is not predicted

These have no number:

- an operator without a class, such as a Metal kernel of your own
- a product of integer or complex matrices
- a call that runs on the CPU
- a Mac whose GPU clock is not public (MacBook Neo)

`predict_operator` raises `CostError` and says why; a step counts such calls in `left_out`.

A recording knows the memory layout of a call's inputs and the axes along which it works. A call that you write yourself
has neither. Then the usual case is assumed: inputs without permuted strides, and a reduction along the last of two axes of the same size.

A kernel that `torch.compile` fused is assumed to read or write each of its buffers once, as an elementwise kernel does; this is a judgement. A hot
laptop runs up to a third slower, which no prediction knows.

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
        ("on one chip", "kernels that only one chip was timed with"),
        ("torch 2.5 and later", "torch 2.5 and later"),
        ("torch 1.13 to 2.4", "torch 1.13 to 2.4"),
        ("below 1 ms", "timings below 1 ms"),
        ("1 ms and above", "timings of 1 ms and above"),
        ("shapes left out too", "shapes left out as well as the chip"),
        ("shapes left out too, torch 2.5 and later", "the same, torch 2.5 and later"),
        ("wait predicted too", "all timings, with the wait predicted too"),
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
            neural=data["dtype"][NEURAL],
            neural_depth=data["common"]["neural_depth"],
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
        "\nThe sources of the steps are in `benchmarks/times/steps.csv`. If a source does not state the number of GPU cores, the most common one was taken\n"
        "(`cores_stated` in the file). Rates were converted into times of the same shape.\n"
    )
    return "".join(lines)


def error_of(step: dict[str, Any]) -> float:
    return float(abs(step["predicted"] / step["measured"] - 1))


def median_error(found: list[dict[str, Any]]) -> str:
    return percent(sorted(map(error_of, found))[len(found) // 2])


def steps(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The table of steps and what it comes to."""
    kornia = [one for one in found if one["tape"].startswith("kornia-")]
    others = [one for one in found if one not in kornia]
    held = sum(one["low"] <= one["measured"] <= one["high"] for one in found)
    rows = [
        f"| {one['tape'].replace('_', ' ').replace('-', ', ')}{'*' if one['loader'] else ''} | {one['mac']} | {one['torch']} | "
        f"{digits(one['measured'])} ms | {digits(one['predicted'])} ms | {digits(one['low'])} to {digits(one['high'])} | "
        f"{'yes' if one['low'] <= one['measured'] <= one['high'] else 'no'} | {one['bound']} |\n"
        for one in found
    ]
    return {
        "step_rows": "".join(rows),
        "step_median": median_error(found),
        "step_half": percent(sum(error_of(one) <= 0.5 for one in found) / len(found)),
        "step_count": len(found),
        "other_count": len(others),
        "other_median": median_error(others),
        "kornia_median": median_error(kornia),
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
        "new_chip": data["new_chip"],
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
        "one_chip": data["intervals"]["ratio, one chip"][1],
        "pairs_one_generation": found["pairs_one_generation"],
        "one_generation": percent(found["one_generation"]),
        "two_generations": percent(found["two_generations"]),
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
