"""MPS2xx: places in the loop where the host waits for the GPU in every step.

Waits that belong do not count: the batch's copy to the device, a loss that is read every fifth step or after the loop,
one-off printing, validation between steps.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator

from anymps._errors import UnsupportedTorchError
from anymps.findings._costs import COPY, ITEM, SYNCHRONIZE, cost_of_wait
from anymps.findings._example import Example
from anymps.findings._loop import AtLine, by_line, is_every_step, times
from anymps.findings._model import Finding, Rule, Severity
from anymps.record import Phase, Recording, Wait
from anymps.rules import wait_of

_DRAIN = (
    "The host waits until the GPU has finished all queued work, and the GPU then stands still until the host has "
    "queued more."
)

READ = Rule(
    id="MPS201",
    title="Value read back in every step",
    severity=Severity.WARNING,
    why=_DRAIN,
    fix="Add up on the device (`total += loss.detach()`) and read the sum every 50 steps or after the loop.",
    source=f"aten/src/ATen/native/mps/operations/Scalar.mm (torch 2.13); {ITEM.source}",
    example=Example(
        bad="""
            total = 0.0
            for x in batches:
                total += train(x).item()
        """,
        good="""
            total = torch.zeros((), device=device)
            for x in batches:
                total += train(x)
            print(total.item())
        """,
    ),
)

PRINT = Rule(
    id="MPS202",
    title="Tensor printed or logged in every step",
    severity=Severity.WARNING,
    why=f"Showing a tensor reads it back. {_DRAIN}",
    fix="Print or log every 50 steps: `if step % 50 == 0: ...`.",
    source=f"torch/_tensor_str.py, torch/_tensor.py (torch 2.13); {ITEM.source}",
    example=Example(
        bad="""
            for x in batches:
                print(train(x))
        """,
        good="""
            for step, x in enumerate(batches):
                loss = train(x)
                if step % 50 == 0:
                    print(loss)
        """,
    ),
)

INSIDE = Rule(
    id="MPS203",
    title="Operator reads back inside, in every step",
    severity=Severity.WARNING,
    why=f"The operator needs a value on the host before it can go on. {_DRAIN}",
    fix="Use an operator whose result has a fixed size, or do this once before the loop.",
    source=f"callers of MPSStream::synchronize and Tensor::item in the macOS wheels; {ITEM.source}",
    example=Example(
        bad="""
            for x in batches:
                train(x)
                weight = model.weight.detach()
                total = weight[weight > 0].sum()
        """,
        good="""
            for x in batches:
                train(x)
                weight = model.weight.detach()
                total = torch.where(weight > 0, weight, 0).sum()
        """,
    ),
)

TO_CPU = Rule(
    id="MPS204",
    title="Tensor copied to the CPU in every step",
    severity=Severity.WARNING,
    why=_DRAIN,
    fix="Collect tensors on the device (`.detach()`), and copy them once after the loop or every 50 steps.",
    source=f"aten/src/ATen/native/mps/operations/Copy.mm (torch 2.13); {COPY.source}",
    example=Example(
        bad="""
            losses = []
            for x in batches:
                losses.append(train(x).cpu())
        """,
        good="""
            losses = []
            for x in batches:
                losses.append(train(x))
            losses = torch.stack(losses).cpu()
        """,
    ),
)

SYNCHRONIZED = Rule(
    id="MPS205",
    title="synchronize() in every step",
    severity=Severity.WARNING,
    why=_DRAIN,
    fix="Synchronise only around what is timed: once before the clock starts and once before it stops, for many steps.",
    source=f"aten/src/ATen/mps/MPSStream.mm (torch 2.13); {SYNCHRONIZE.source}",
    example=Example(
        bad="""
            for x in batches:
                train(x)
                torch.mps.synchronize()
        """,
        good="""
            for x in batches:
                train(x)
            torch.mps.synchronize()
        """,
    ),
)

DRAINED = Rule(
    id="MPS206",
    title="Event wait or empty_cache() in every step",
    severity=Severity.WARNING,
    why=_DRAIN,
    fix="Take it out of the loop.",
    source=f"aten/src/ATen/mps/MPSEvent.mm, MPSAllocator.mm (torch 2.13); {SYNCHRONIZE.source}",
    example=Example(
        bad="""
            for x in batches:
                train(x)
                torch.mps.empty_cache()
        """,
        good="""
            for x in batches:
                train(x)
            torch.mps.empty_cache()
        """,
    ),
)

RULES = (READ, PRINT, INSIDE, TO_CPU, SYNCHRONIZED, DRAINED)

_RULE_OF = {
    Wait.ITEM: READ,
    Wait.INSIDE_OPERATOR: INSIDE,
    Wait.COPY_TO_CPU: TO_CPU,
    Wait.SYNCHRONIZE: SYNCHRONIZED,
    Wait.EVENT: DRAINED,
    Wait.EMPTY_CACHE: DRAINED,
}

# Formatting a tensor ends up in these torch functions (torch/_tensor_str.py, Tensor.__format__ and __repr__).
_SHOWING_VIA = re.compile(r"_tensor_str|__format__|__repr__|__str__")
_SHOWING_CALL = re.compile(
    r"\b(?:print|pprint)\s*\("
    r"|\b_?(?:log|logger|logging|LOG|LOGGER)\.(?:debug|info|warning|warn|error|critical|exception|log)\("
    r"|\bwandb\.log\(|\bself\.log(?:_dict)?\("
    r"|\.(?:add_scalars?|set_postfix|set_postfix_str|set_description)\(|\b(?:tqdm|stdout|stderr)\.write\("
)

_INSTEAD = {
    "nonzero": "Keep the mask: `torch.where(mask, x, 0)`, or multiply by it.",
    "masked_select": "Keep the mask: `torch.where(mask, x, 0)`, or multiply by it.",
    "index": "Keep the mask instead of indexing with it: `torch.where(mask, x, 0)`, or multiply by it.",
    "_index_put_impl_": "Write `x = torch.where(mask, value, x)` for `x[mask] = value`.",
    "repeat_interleave": "Give `output_size=`: the result's size is then known without a read.",
    "equal": "Compare on the device, `(a == b).all()`, and read the answer every 50 steps.",
    "bincount": "Add into a tensor of known size: `counts.scatter_add_(0, labels, torch.ones_like(labels))`.",
    "masked_fill_": "Give the fill value as a Python number.",
    "index_fill_": "Give the fill value as a Python number.",
    "bernoulli_": "Give the probability as a Python number.",
    "histc": "Give `min=` and `max=`.",
    "histogram": "Give `range=`.",
    "_fused_adam_": "Give the learning rate as a Python number.",
    "_fused_adamw_": "Give the learning rate as a Python number.",
    "_fused_sgd_": "Give the learning rate as a Python number.",
}


def find(recording: Recording) -> Iterator[Finding]:
    """Findings about host waits in every step."""
    routine = [wait for wait in recording.waits() if wait.wait in _RULE_OF and is_every_step(recording, wait)]
    for line in by_line(routine):
        if _shows(line):
            yield _finding(recording, PRINT, line)
            continue
        for rule in dict.fromkeys(_RULE_OF[wait.wait] for wait in line.occurrences):
            mine = tuple(wait for wait in line.occurrences if _RULE_OF[wait.wait] is rule)
            yield _finding(recording, rule, AtLine(line.site, mine))


def _finding(recording: Recording, rule: Rule, line: AtLine) -> Finding:
    costs = [cost_of_wait(wait.wait, wait.count, wait.moved_bytes) for wait in line.occurrences]
    what, fix, source = _words(recording, rule, line)
    return rule.finding(
        line.site,
        what=f"{what} {times(line.per_step)} a step.",
        count=line.count,
        per_step=line.per_step,
        cost_ns=(sum(low for low, _ in costs), sum(high for _, high in costs)),
        fix=fix,
        source=source,
    )


def _words(recording: Recording, rule: Rule, line: AtLine) -> tuple[str, str, str]:
    """What happened, then a fix and a source of its own where the place allows one."""
    if rule is READ:
        return _read_words(line)
    if rule is PRINT:
        return "Showing a tensor made the host wait", "", ""
    if rule is INSIDE:
        return _inside_words(recording, line)
    if rule is TO_CPU:
        moved = line.moved_bytes / line.count
        return f"A blocking copy to the CPU of {moved:.0f} bytes on average made the host wait", "", ""
    if rule is SYNCHRONIZED:
        return "A synchronize made the host wait", "", ""
    if any(wait.wait is Wait.EMPTY_CACHE for wait in line.occurrences):
        return (
            "empty_cache() made the host wait",
            "Take it out of the loop: the next step must allocate again, and from torch 2.13 compile its graphs again. "
            "Call it once where the memory's use changes, such as before validation.",
            "",
        )
    return "Waiting for an event made the host wait", "Read events after the loop, or every 50 steps.", ""


def _read_words(line: AtLine) -> tuple[str, str, str]:
    code = _code(line.site.source)
    if any("grad_scaler" in wait.site.via for wait in line.occurrences):
        return (
            "GradScaler read whether a gradient was infinite",
            "Train in bfloat16 or float32, which need no GradScaler.",
            "torch/amp/grad_scaler.py (torch 2.13); " + ITEM.source,
        )
    if line.phases == (Phase.OPTIMIZER,):
        return (
            "The optimizer read a value back",
            "Use the fused optimizer: `AdamW(..., fused=True)`, with the learning rate as a Python number.",
            "scvi-tools PR 3998 (17 of 22 waits of a step were an unfused Adam's); " + ITEM.source,
        )
    if re.match(r"(?:el)?(?:if|while)\b|assert\b", code) and not re.search(r"\.item\(|\b(?:float|int|bool)\(", code):
        return (
            "A test of a tensor's truth made the host wait",
            "Decide on the device with `torch.where`, or test every 50 steps.",
            "",
        )
    for call in ("item", "tolist"):
        if f".{call}(" in code:
            return f"`.{call}()` made the host wait", "", ""
    for call in ("float", "int", "bool"):
        if re.search(rf"\b{call}\(", code):
            return f"`{call}()` of a tensor made the host wait", "", ""
    return "Reading a value made the host wait", "", ""


def _inside_words(recording: Recording, line: AtLine) -> tuple[str, str, str]:
    names = [operator.rpartition("::")[2] for operator in line.operators]
    fix = next((_INSTEAD[name.partition(".")[0]] for name in names if name.partition(".")[0] in _INSTEAD), "")
    known = None
    try:
        known = wait_of(names[0], str(recording.meta.get("torch_version", "")))
    except UnsupportedTorchError:
        pass  # a recording of another torch, or of an unknown one
    operators = " and ".join(f"`{operator}`" for operator in line.operators)
    if known is None:
        return f"{operators} made the host wait", fix, ""
    return f"{operators} made the host wait ({known.what})", fix, f"{known.source}; {ITEM.source}"


def _shows(line: AtLine) -> bool:
    return any(_SHOWING_VIA.search(wait.site.via) for wait in line.occurrences) or bool(
        _SHOWING_CALL.search(_code(line.site.source))
    )


def _code(source: str) -> str:
    """A source line without its comment. One line of several may be half a statement: then as far as it can be read."""
    code = source.strip()
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.type == tokenize.COMMENT:
                return code[: token.start[1]].rstrip()
    except (tokenize.TokenError, SyntaxError):
        pass
    return code
