"""MPS831 to MPS836: how `torch.compile` is asked for, its graph breaks and recompilations, and Metal's limits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from anymps.findings._endings import ending, kernel_limit
from anymps.findings._loop import MIN_STEPS, count_of, is_library, uses_mps
from anymps.findings._model import Example, Finding, Rule, Severity
from anymps.record import Noted, Recording

BACKEND = Rule(
    id="MPS831",
    title="torch.compile rejects the name of its backend",
    why=(
        "A backend is a compiler, not a device: torch raises InvalidBackend at once. The default one, inductor, "
        "writes Metal kernels for tensors on mps, as a prototype since torch 2.7."
    ),
    fix="Leave `backend` out: `torch.compile(model)`.",
    source="torch/_dynamo/backends/registry.py, torch/_inductor/codegen/mps.py, torch 2.7 to 2.15",
    example=Example(
        bad="""
            model = torch.nn.Linear(4, 2).to(device)
            model = torch.compile(model, backend="mps")
        """,
        better={'model = torch.compile(model, backend="mps")': "model = torch.compile(model)"},
    ),
)

MODE = Rule(
    id="MPS832",
    title="torch.compile mode without effect on mps",
    severity=Severity.INFO,
    why=(
        "The mode chooses CUDA graphs and tuned Triton templates, and mps has neither. The compiled code is the "
        "same, and the search for the best kernel only costs time."
    ),
    fix="Leave `mode` out: `torch.compile(model)`.",
    source="torch/_inductor/codegen/mps.py, torch/_inductor/__init__.py (list_mode_options), torch 2.13",
    example=Example(
        bad="""
            model = torch.nn.Linear(4, 2).to(device)
            model = torch.compile(model, mode="reduce-overhead")
        """,
        better={'model = torch.compile(model, mode="reduce-overhead")': "model = torch.compile(model)"},
    ),
)

_NOT_BACKENDS: Final = ("mps", "metal")
_GPU_MODES: Final = ("reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")

BREAK = Rule(
    id="MPS833",
    title="Graph break in a compiled function",
    severity=Severity.WARNING,
    why=(
        "torch.compile cuts the graph in two, on a Mac as well. Kernels on the two sides cannot be fused, the code "
        "between them runs as plain Python, and less work is queued for the GPU."
    ),
    fix=(
        "Move this line's work out of the compiled function. `TORCH_LOGS=graph_breaks` prints every break, and "
        "`torch.compile(model, fullgraph=True)` raises at the first one."
    ),
    related_as="called at",
    source="torch/_dynamo/symbolic_convert.py (log_graph_break), torch 2.11 to 2.15",
    example=Example(
        bad="""
            @torch.compile(backend="eager")
            def double(x):
                return x * 2 if x.sum() > 0 else x


            for _ in range(12):
                double(torch.ones(3, device=device))
        """,
        better={"return x * 2 if x.sum() > 0 else x": "return torch.where(x.sum() > 0, x * 2, x)"},
    ),
)

_LEAST_RUNS = 10  # runs of a line that make a loop where there is no training

_BREAK_FIXES: Final = (
    (
        r"\.item\(\)|tolist",
        "Keep the value a tensor in the compiled function, and read it where the function was called.",
    ),
    (r"ata-dependent", "Choose with `torch.where` instead of an `if`, or test before the compiled function is called."),
    (r"`print`|logg", "Take the output out of the compiled function; return what it prints."),
    (
        r"Dynamic shape operator|output shape depends",
        "Keep the size: zero the unwanted elements with `torch.where`, or multiply by the mask.",
    ),
    (r"`time\.|time function|clock", "Read the clock outside of the compiled function."),
)

_RECOMPILED_SOURCE: Final = (
    "torch/_dynamo/convert_frame.py (get_and_maybe_log_recompilation_reasons, exceeds_recompile_limit), torch 2.11 to "
    "2.15"
)
_SAME_VALUE: Final = (
    "Keep the value that the guard checks the same in every call. `TORCH_LOGS=recompiles` prints every guard "
    "that fails."
)
_EXAMPLE: Final = """
    @torch.compile(backend="eager")
    def scale(x, name):
        return x * len(name)


    for step in range({steps}):
        scale(torch.ones(3, device=device), {name})
"""

AGAIN = Rule(
    id="MPS834",
    title="Function recompiled repeatedly",
    severity=Severity.WARNING,
    why=(
        "A compiled function is valid only while its guards hold: sizes, numbers, attributes. When one fails, the "
        "call waits for Dynamo, Inductor and Metal's compiler, which takes seconds. One recompilation is normal: it "
        "makes a changing size dynamic."
    ),
    fix=_SAME_VALUE,
    related_as="called at",
    source=_RECOMPILED_SOURCE,
    example=Example(
        bad=_EXAMPLE.format(steps=5, name='f"step {step}"'),
        good=_EXAMPLE.format(steps=5, name='"step"'),
    ),
)

LIMIT = Rule(
    id="MPS835",
    title="torch.compile gave up after too many recompilations",
    severity=Severity.WARNING,
    why=(
        "After 8 recompilations (`torch._dynamo.config.recompile_limit`), a call that fits no compiled version runs "
        "uncompiled, operator by operator. The time spent compiling is lost."
    ),
    fix=_SAME_VALUE,
    related_as="called at",
    source=_RECOMPILED_SOURCE,
    example=Example(
        bad=_EXAMPLE.format(steps=12, name='f"step {step}"'),
        good=_EXAMPLE.format(steps=12, name='"step"'),
    ),
)

_LEAST_RECOMPILED = 3  # recompilations: sizes become dynamic, and a size of 1 or an evaluation takes one more

_EXPECTED: Final = re.compile(r"GLOBAL_STATE changed|\.training\b")
"""Guards that fail once for an evaluation and once for the training."""

_GUARD_FIXES: Final = (
    (
        r"(size|stride|shape|rank) mismatch|\.size\(\)|\.stride\(\)",
        "Keep the sizes: pad batches, or give the DataLoader `drop_last=True`. Where sizes must change, compile with "
        "`dynamic=True`, or say which with `torch._dynamo.mark_dynamic(x, 0)`.",
    ),
    (r"\['lr'\]", "Make the learning rate a tensor when you make the optimizer: `lr=torch.tensor(0.001)`."),
    (
        r"^(?P<name>[A-Za-z_]\w*\.[\w.]+) == -?[\d.]+",
        "Keep `{name}` out of the compiled function, or make it a buffer, a tensor of the module.",
    ),
    (
        r"^(?P<name>[A-Za-z_]\w*) == -?[\d.]+",
        "Pass `{name}` as a tensor, `torch.tensor({name})`: torch.compile recompiles for each Python number.",
    ),
)

KERNEL = Rule(
    id="MPS836",
    title="Kernel exceeds a Metal limit",
    explains=lambda recording: bool(kernel_limit(ending(recording).message)),
    why=(
        "A Metal kernel may use 31 buffers, and 32 KiB of threadgroup memory. Inductor's fusion ignores both limits: "
        "a sum of many tensors becomes one kernel with a buffer for each."
    ),
    fix=(
        "Fuse less: `torch._inductor.config.max_fusion_size = 2` before compiling, or put the code with so many "
        "inputs into a function with `@torch.compiler.disable`."
    ),
    source=(
        "torch/_inductor/codegen/mps.py, torch 2.11 to 2.15; Metal Feature Set Tables; pytorch issue 141287 (the text "
        "of Metal's compiler for a kernel of torch.compile)"
    ),
    example=Example(
        bad="""
            @torch.compile
            def add(*tensors):
                return sum(tensors)


            add(*torch.ones(40, 8, device=device).unbind())
        """,
        better={"add(*torch.ones(40, 8, device=device).unbind())": "add(*torch.ones(20, 8, device=device).unbind())"},
    ),
)


def find(recording: Recording) -> Iterator[Finding]:
    """Findings about compiled code."""
    yield from _asked(recording)
    yield from _graph_breaks(recording)
    yield from _recompilations(recording)
    yield from _kernel_limits(recording)


def _asked(recording: Recording) -> Iterator[Finding]:
    """Findings about how a model is compiled."""
    for compiled in recording.noted("compile"):
        site, count = compiled.occurrence.site, compiled.occurrence.count
        backend, mode = str(compiled.facts.get("backend")), str(compiled.facts.get("mode"))
        if is_library(site):
            continue
        if backend in _NOT_BACKENDS:
            yield BACKEND.finding(site, what=f'`torch.compile` was given `backend="{backend}"`.', count=count)
        elif mode in _GPU_MODES and backend == "inductor" and uses_mps(recording):
            yield MODE.finding(site, what=f'`torch.compile` was given `mode="{mode}"`.', count=count)


def _graph_breaks(recording: Recording) -> Iterator[Finding]:
    """One finding for each line and reason; a warning where the line belongs to the loop."""
    breaks = recording.noted("graph_break")
    if breaks and uses_mps(recording):
        for broken in breaks:
            yield _graph_break(recording, broken)


def _graph_break(recording: Recording, broken: Noted) -> Finding:
    site, call = broken.occurrence.site, broken.other
    # A break inside a package is reported at the program's line that led there: nobody edits the package.
    within = is_library(site) and call.known and not is_library(call)
    runs, steps = _runs(recording, broken)
    hot, often = True, f" in {steps:,} of {recording.training_steps:,} steps"
    if recording.training_steps < MIN_STEPS:
        hot, often = runs >= _LEAST_RUNS, ""
    elif steps < 2 or 2 * steps < recording.training_steps:
        hot, often = False, ""
    kind, said = str(broken.facts.get("kind", "")), str(broken.facts.get("explanation", ""))
    name = f"`{site.function}`" if site.function else "a function"
    if broken.facts.get("skipped"):
        what = f"torch.compile cannot continue after this line and runs all of {name} uncompiled{often}."
    else:
        what = f"torch.compile breaks the graph of {name} here{often}."
    return BREAK.finding(
        call if within else site,
        what=f'{what} Dynamo says: "{_sentence(said or kind)}."',
        count=steps if often else 1,
        per_step=1.0 if often else 0.0,
        fix=next((fix for pattern, fix in _BREAK_FIXES if re.search(pattern, f"{kind} {said}")), ""),
        related_sites=[site] if within else [call] if call.file_line != site.file_line else [],
        related_as="broken at" if within else "",
        severity=Severity.WARNING if hot else Severity.INFO,
    )


def _runs(recording: Recording, broken: Noted) -> tuple[int, int]:
    """How often the line or its call ran anything, and in how many complete steps: a break is noted only once."""
    there = [*recording.at_line(broken.occurrence.site), *recording.at_line(broken.other)]
    count = max((occurrence.count for occurrence in there), default=0)
    steps = max((occurrence.steps for occurrence in there), default=0)
    return count, steps


def _sentence(text: str) -> str:
    """The first one."""
    return re.split(r"\.(?=\s+[A-Z]|$)", text)[0]


def _recompilations(recording: Recording) -> Iterator[Finding]:
    """One finding for each function."""
    if not uses_mps(recording):
        return
    functions: dict[tuple[str, int, str], list[Noted]] = {}
    for again in recording.noted("recompiled"):
        site = again.occurrence.site
        functions.setdefault((*site.file_line, str(again.facts.get("within"))), []).append(again)
    for marks in functions.values():
        limit = next((mark for mark in marks if mark.facts.get("limit")), None)
        failed = [mark for mark in marks if not _EXPECTED.search(_guard(mark)) and not mark.facts.get("limit")]
        count = count_of(failed)
        if limit is not None:
            compiled = 1 + count_of(mark for mark in marks if not mark.facts.get("limit"))
            reached = f"`torch._dynamo.config.{limit.facts['limit']}` was reached"
            what = f"{_name(limit)} was compiled {compiled} times, then ran uncompiled: {reached}."
            yield _recompiled(LIMIT, limit, what, limit.occurrence.count)
        elif count >= _LEAST_RECOMPILED:
            yield _recompiled(AGAIN, failed[-1], f"{_name(failed[-1])} was compiled {count + 1} times.", count)


def _recompiled(rule: Rule, last: Noted, what: str, count: int) -> Finding:
    guard = _guard(last)
    said = f" The guard that failed last: `{guard}`." if guard else ""
    site, call = last.occurrence.site, last.other
    related = [call] if call.file_line != site.file_line else []
    return rule.finding(site, what=what + said, count=count, fix=_fix_of(guard), related_sites=related)


def _fix_of(guard: str) -> str:
    for pattern, fix in _GUARD_FIXES:
        found = re.search(pattern, guard)
        if found is not None:
            return fix.format(**found.groupdict())
    return ""


def _guard(mark: Noted) -> str:
    return str(mark.facts.get("guard", ""))


def _name(mark: Noted) -> str:
    name = mark.facts.get("within") or mark.occurrence.site.function
    return f"`{name}`" if name else "A function"


def _kernel_limits(recording: Recording) -> Iterator[Finding]:
    """The finding about the exception that ended the run, if it is about such a kernel."""
    ended = ending(recording)
    if said := kernel_limit(ended.message):
        yield KERNEL.finding(ended.site, what=f"Metal refused a kernel: {said}.", count=1)
