"""MPS101 to MPS107: operators that MPS does not have, and arguments and values that it refuses."""

from __future__ import annotations

from collections.abc import Iterator

from anymps.findings._catalogue import read_rules
from anymps.findings._costs import FALLBACK
from anymps.findings._loop import MIN_STEPS, AtLine, by_line, is_every_step, loops_untrained, number, some_steps, times
from anymps.findings._model import Finding, at
from anymps.findings._refusals import Refused, refused_as, told_as_raised
from anymps.findings._release import release_of
from anymps.findings.advice import equivalent
from anymps.record import Fate, Phase, Recording, RefusalKind
from anymps.rules import OLDEST, native_since

_VARIABLE = "PYTORCH_ENABLE_MPS_FALLBACK"

_RULES = read_rules(__file__, "operators.toml")
MISSING = _RULES["MPS101"]
EVERY_STEP = _RULES["MPS102"]
NOW_AND_THEN = _RULES["MPS103"]
DISTRIBUTED = _RULES["MPS104"]
ARGUMENT = _RULES["MPS105"]
INDEX = _RULES["MPS106"]
DETERMINISM = _RULES["MPS107"]


def find(recording: Recording) -> Iterator[Finding]:
    """Findings about operators that MPS does not have, and about what it refuses."""
    for refused in refused_as(recording, RefusalKind.MISSING):
        yield _missing(recording, refused)
    yield from told_as_raised(recording, RefusalKind.DISTRIBUTED, DISTRIBUTED)
    yield from told_as_raised(recording, RefusalKind.ARGUMENT, ARGUMENT)
    yield from told_as_raised(recording, RefusalKind.DETERMINISM, DETERMINISM)
    for refused in refused_as(recording, RefusalKind.INDEX):
        yield INDEX.finding(refused.site, what=_late(refused), count=refused.count, related_sites=[refused.origin])
    fallbacks = recording.fallbacks()
    hot = [fallback for fallback in fallbacks if is_every_step(recording, fallback)]
    for line in by_line(hot, split_operators=True):
        yield _every_step(recording, line)
    for line in by_line([fallback for fallback in fallbacks if fallback not in hot], split_operators=True):
        yield _in_loop(recording, line) if loops_untrained(recording, line) else _now_and_then(recording, line)


def _missing(recording: Recording, refused: Refused) -> Finding:
    native = _native_words(recording, refused.operator)
    set_it = f"et {_VARIABLE}=1 before `import torch` to run it on the CPU, which is slower."
    if recording.run.environment.get(_VARIABLE, "0") != "0":
        where = "before `import torch`" if recording.run.virtual else "in the shell, as anymps loads torch first"
        set_it = f"et {_VARIABLE}=1 {where}: it was set when torch was loaded already, which is too late."
    return MISSING.finding(
        refused.site,
        what=f"`{refused.operator}` has no MPS kernel and raised {refused.error}{refused.called}.",
        count=refused.count,
        fix=f"{native} Or s{set_it}" if native else f"S{set_it}",
        related_sites=[refused.origin],
    )


def _every_step(recording: Recording, line: AtLine) -> Finding:
    (operator,) = line.operators
    backward = " of the backward pass" if line.phases == (Phase.BACKWARD,) else ""
    what = (
        f"`{operator}`{backward}{_module_words(line)} ran on the CPU {times(line.per_step)} a step"
        f"{some_steps(recording, line.occurrences)}: "
        f"{number(2 * line.per_step)} device switches a step{_always_words(line)}."
    )
    return _hot(recording, line, what, line.per_step)


def _in_loop(recording: Recording, line: AtLine) -> Finding:
    """In the rounds of a loop that takes no training step, such as a validation or an inference."""
    (operator,) = line.operators
    what = (
        f"`{operator}`{_module_words(line)} ran on the CPU {times(line.count)} in a loop without a training step: "
        f"{2 * line.count} device switches{_always_words(line)}."
    )
    return _hot(recording, line, what)


def _hot(recording: Recording, line: AtLine, what: str, per_step: float = 0.0) -> Finding:
    (operator,) = line.operators
    return EVERY_STEP.finding(
        line.site,
        what=what,
        count=line.count,
        per_step=per_step,
        cost_ns=FALLBACK.of(line.count, line.moved_bytes),
        fix=_native_words(recording, operator) or EVERY_STEP.fix,
    )


def _now_and_then(recording: Recording, line: AtLine) -> Finding:
    (operator,) = line.operators
    short = recording.training_steps < MIN_STEPS
    unsure = " The recording is too short to tell whether this happens in the loop." if short else ""
    return NOW_AND_THEN.finding(
        line.site,
        what=f"`{operator}` ran on the CPU {times(line.count)}{_always_words(line)}.{unsure}",
        count=line.count,
        per_step=line.per_step,
        cost_ns=FALLBACK.of(line.count, line.moved_bytes),
        fix=_native_words(recording, operator) if short else "",
    )


def _module_words(line: AtLine) -> str:
    if len(line.modules) > 1:
        return f" in {len(line.modules)} modules"
    return f" in module `{line.modules[0]}`" if line.modules else ""


def _always_words(line: AtLine) -> str:
    if any(occurrence.fate is Fate.ALWAYS_FALLBACK for occurrence in line.occurrences):
        return ", regardless of PYTORCH_ENABLE_MPS_FALLBACK"
    return ""


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


def _late(refused: Refused) -> str:
    reported = f"`{refused.operator}` reported: {refused.message or 'an assertion without a message'}"
    if refused.origin.known:
        return f"{reported}; {refused.error} was raised at {at(refused.origin)}, the next wait."
    return f"{reported}; no exception was raised for it: another error came first, or nothing waited."
