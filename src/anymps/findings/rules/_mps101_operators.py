"""MPS101 to MPS104: operators that MPS does not have: those that raise, and those that run on the CPU instead."""

from __future__ import annotations

from collections.abc import Iterator

from anymps._text import base_name, duration_range, listed
from anymps.findings._costs import FALLBACK
from anymps.findings._loop import MIN_STEPS, AtLine, by_line, is_every_step, loops_untrained, number, some_steps, times
from anymps.findings._model import Example, Finding, Rule, Severity
from anymps.findings._refusals import Refused, refused_as, told_as_raised
from anymps.findings._release import release_of
from anymps.findings.advice import equivalent
from anymps.record import Fate, Phase, Recording, RefusalKind, Wait
from anymps.rules import LAST_RELEASE, OLDEST, SCALAR_TYPES, native_since, refused_dtype

_ACCEPT = "accept the CPU: {cost}"
_VARIABLE = "PYTORCH_ENABLE_MPS_FALLBACK"
_UNSHUFFLED = {
    "torch.nn.functional.channel_shuffle(images, 2)": "images.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)"
}
_SOURCE = "aten/src/ATen/mps/MPSFallback.mm; native_functions.yaml of the macOS wheels, torch 2.7 to 2.15"

MISSING = Rule(
    id="MPS101",
    title="Operator without an MPS kernel",
    refusal=True,
    why="PyTorch has no Metal kernel for it, and with the CPU fallback off the call raises NotImplementedError.",
    fix="Write it with operators that MPS has, or set PYTORCH_ENABLE_MPS_FALLBACK=1 before `import torch`.",
    source=_SOURCE,
    example=Example(
        bad="""
            x = torch.rand(2, 4, 3, 3, device=device)
            y = torch.nn.functional.channel_shuffle(x, 2)
        """,
        better={"torch.nn.functional.channel_shuffle(x, 2)": "x.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)"},
    ),
)

EVERY_STEP = Rule(
    id="MPS102",
    title="Operator runs on the CPU in the loop",
    waits=frozenset({Wait.FALLBACK}),
    about_loops=True,
    severity=Severity.WARNING,
    why=(
        "Each call waits until the GPU is done, copies the inputs to the CPU and the results back. Meanwhile the GPU "
        "is idle."
    ),
    fix="Write it with operators that MPS has, or move it out of the loop.",
    source=f"{_SOURCE}; {FALLBACK.source}",
    example=Example(
        bad="""
            images = torch.rand(2, 4, 3, 3, device=device)
            for x in batches:
                train(x)
                y = torch.nn.functional.channel_shuffle(images, 2)
        """,
        better=_UNSHUFFLED,
        fallback=True,
    ),
)

NOW_AND_THEN = Rule(
    id="MPS103",
    title="Operator runs on the CPU outside of the loop",
    severity=Severity.INFO,
    why="Each call waits for the GPU and copies to the CPU and back. That does not matter if it is rare.",
    fix="Nothing, unless it moves into the loop.",
    source=_SOURCE,
    example=Example(
        bad="""
            images = torch.rand(2, 4, 3, 3, device=device)
            y = torch.nn.functional.channel_shuffle(images, 2)
            for x in batches:
                train(x)
        """,
        better=_UNSHUFFLED,
        fallback=True,
    ),
)

DISTRIBUTED = Rule(
    id="MPS104",
    title="Distributed operator has no MPS kernel",
    refusal=True,
    why="Collectives have no MPS kernel and, unlike other operators, no CPU fallback.",
    fix="Train in one process on a Mac, or communicate CPU tensors through the gloo backend.",
    source="aten/src/ATen/mps/MPSFallback.mm, torch 2.11 to 2.15",
    example=Example(
        bad="""
            import torch.distributed as dist

            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            total = torch.ones(3, device=device)
            dist.all_reduce(total)
        """,
        better={"dist.all_reduce(total)": "total = total.cpu()\ndist.all_reduce(total)"},
    ),
    since=(2, 11),
)


def find(recording: Recording) -> Iterator[Finding]:
    """Findings about operators that MPS does not have."""
    for refused in refused_as(recording, RefusalKind.MISSING):
        yield _missing(recording, refused)
    yield from told_as_raised(recording, RefusalKind.DISTRIBUTED, DISTRIBUTED)
    fallbacks = recording.fallbacks()
    hot = [fallback for fallback in fallbacks if is_every_step(recording, fallback)]
    for line in by_line(hot, split_operators=True):
        yield _in_loop(recording, line, trains=True)
    for line in by_line([fallback for fallback in fallbacks if fallback not in hot], split_operators=True):
        looped = loops_untrained(recording, line)
        yield _in_loop(recording, line, trains=False) if looped else _now_and_then(recording, line)


def _missing(recording: Recording, refused: Refused) -> Finding:
    native = _native_words(recording, refused.operator)
    set_it = f"et {_VARIABLE}=1 before `import torch` to run it on the CPU, which is slower."
    if recording.run.environment.get(_VARIABLE, "0") != "0":
        where = "before `import torch`" if recording.run.virtual else "in the shell, as anymps loads torch first"
        set_it = f"et {_VARIABLE}=1 {where}: it was set when torch was loaded already, which is too late."
    return refused.finding(
        MISSING,
        what=f"`{refused.operator}` has no MPS kernel and raised {refused.error}{refused.called}.",
        fix=f"{native} Or s{set_it}" if native else f"S{set_it}",
        ways=_ways(
            recording, refused.operator, f"run it on the CPU ({_VARIABLE}=1): {duration_range(*FALLBACK.of(1))} a call"
        ),
    )


def _in_loop(recording: Recording, line: AtLine, *, trains: bool) -> Finding:
    """In every step, or in the rounds of a loop that takes none, such as a validation or an inference."""
    (operator,) = line.operators
    backward = " of the backward pass" if trains and line.phases == (Phase.BACKWARD,) else ""
    often = f"{times(line.count)} in a loop without a training step: {2 * line.count} device switches"
    if trains:
        often = f"{times(line.per_step)} a step{some_steps(recording, line.occurrences)}: "
        often += f"{number(2 * line.per_step)} device switches a step"
    return line.finding(
        EVERY_STEP,
        what=f"`{operator}`{backward}{_module_words(line)} ran on the CPU {often}{_always_words(line)}.",
        per_step=line.per_step if trains else 0.0,
        cost_ns=FALLBACK.of(line.count, line.moved_bytes),
        fix=_native_words(recording, operator),
        ways=_ways(recording, operator, _ACCEPT),
    )


def _now_and_then(recording: Recording, line: AtLine) -> Finding:
    (operator,) = line.operators
    short = recording.training_steps < MIN_STEPS
    unsure = " The recording is too short to tell whether this happens in the loop." if short else ""
    return line.finding(
        NOW_AND_THEN,
        what=f"`{operator}` ran on the CPU {times(line.count)}{_always_words(line)}.{unsure}",
        cost_ns=FALLBACK.of(line.count, line.moved_bytes),
        fix=_native_words(recording, operator) if short else "",
        ways=_ways(recording, operator, _ACCEPT, rare=not short),
    )


def _module_words(line: AtLine) -> str:
    if len(line.modules) > 1:
        return f" in {len(line.modules)} modules"
    return f" in module `{line.modules[0]}`" if line.modules else ""


def _always_words(line: AtLine) -> str:
    if any(occurrence.fate is Fate.ALWAYS_FALLBACK for occurrence in line.occurrences):
        return ", regardless of PYTORCH_ENABLE_MPS_FALLBACK"
    return ""


def _ways(recording: Recording, operator: str, on_cpu: str, *, rare: bool = False) -> tuple[str, ...]:
    """The four ways out, those that there are first: what is `rare` may stay where it is."""
    known, release = equivalent(operator), native_since(operator)
    last = "{}.{}".format(*LAST_RELEASE)
    ways = [f"rewrite: `{known.instead}` for `{known.call}`"] if known is not None else []
    none = [] if ways else ["rewrite: none is known that MPS computes alone"]
    if release is not None and release > (release_of(recording) or OLDEST):
        name, new = base_name(operator), "{}.{}".format(*release)
        refused = [dtype for dtype in SCALAR_TYPES if refused_dtype(name, dtype, new) is not None]
        ways.append(f"upgrade: torch {new} has a kernel")
        told = f"that kernel takes no {listed(refused, 'or')}" if refused else "that kernel is not known to refuse any"
        none.append(f"other dtype: none helps before; {told}")
    else:
        none += [f"upgrade: no torch up to {last} has a kernel", "other dtype: none has a kernel"]
    return (on_cpu, *ways, *none) if rare else (*ways, on_cpu, *none)


def _native_words(recording: Recording, operator: str) -> str:
    """What to use instead of `operator`, if anything is known."""
    words = []
    if operator.startswith("aten::_nested_tensor_from_mask"):
        words.append(
            "Build the encoder without nested tensors: `nn.TransformerEncoder(..., enable_nested_tensor=False)`."
        )
    known = equivalent(operator)
    if known is not None:
        words.append(f"Write `{known.instead}` for `{known.call}`.")
    release = native_since(operator)
    if release is not None and release > (release_of(recording) or OLDEST):
        words.append(f"torch {release[0]}.{release[1]} has an MPS kernel for it.")
    return " ".join(words)
