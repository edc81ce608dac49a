"""What becomes of an operator's calls in another release of torch: it has a kernel, falls back, or refuses them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache, partial
from math import inf
from typing import Final

from anymps._errors import CostError
from anymps.cost import read_tensor
from anymps.record import Fate, Recording, Refusal, RefusalKind, Signature, Site
from anymps.rules import (
    NEWEST,
    OLDEST,
    OPERATOR_LIMITS,
    REFUSED_DTYPES,
    SCALAR_TYPES,
    Kind,
    alerts,
    coverage,
    in_force,
    refused_dtype,
    registered,
    registrations,
    widened_dtypes,
)
from anymps.rules.faults import BATCHED_MATRICES, all_hazards
from anymps.upgrade._subjects import FINE, Answer, Outcome, Release, Subject, first_dtype, named

_DENSE: Final = frozenset({"MPS", "Python"})
_INDEX_CHECKED: Final = (2, 10)
"""From this release on, kernels report a bad index; before, they read what lies there (c10/metal/error.h)."""
_NO_COMPLEX128: Final = (2, 12)
"""From this release on, EmptyTensor.cpp refuses complex128."""
_CPU_FLOAT64: Final = (2, 14)
"""From this release on, a copy from mps to float64 on the CPU raises no such error (`cpu_copy_to_float64`)."""
_ALWAYS: Final = frozenset({RefusalKind.FLOAT64, RefusalKind.RANK, RefusalKind.LAYOUT})
"""What EmptyTensor.cpp refuses in all releases from 2.7 on."""

_FROM_PYTHON: Final = {"torch/_refs/linalg/__init__.py:linalg_lu_solve_out_mps": "aten::linalg_lu_solve.out"}
"""Kernels that torch registers from Python, by their function: recorded are the operators that they are made of."""

# A limit with such a word in its name concerns calls with tensors of this dtype alone.
_LIMITED_TO: Final = {"complex": "complex64", "int64": "int64", "cast": "float16"}


def base(operator: str) -> str:
    """`add` for `aten::add.Tensor`."""
    return operator.rpartition("::")[2].partition(".")[0]


@lru_cache(maxsize=4096)
def call_answer(operator: str, dtype: str, release: Release, *, fallback: bool = False, size: float = inf) -> Answer:
    """What becomes of a call of an overload (`aten::histc`) whose first tensor has the dtype and `size` elements.

    `fallback`: PYTORCH_ENABLE_MPS_FALLBACK is set. An operator without a kernel that is made of others is unknown:
    which these are in that release, nobody has read.
    """
    name = operator.removeprefix("aten::")
    if "Fallback" in registered(release).get(name, ()):
        return Answer(Outcome.ON_CPU)
    if not _has_kernel(name, release):
        kind = coverage(name, release).kind
        if kind is Kind.COMPOSITE:
            refused = _by_dtype(operator, dtype, release)
            return refused if refused.outcome else _made_of_others(name, release, size)
        if kind is not Kind.NATIVE:
            return Answer(Outcome.ON_CPU if fallback else Outcome.REFUSED, "it has no MPS kernel")
    return _by_dtype(operator, dtype, release)


def _made_of_others(name: str, release: Release, size: float) -> Answer:
    """An operator that has no kernel of its own. If it always fell back before, its inner operator has one now."""
    if not any(entry.key == "Fallback" for entry in registrations().get(name, ())):
        return Answer(Outcome.UNKNOWN, "it is made of other operators there")
    for row in all_hazards():
        over = row.fixed is not None and release >= row.fixed
        small = row.check == BATCHED_MATRICES and size < row.low
        if f"_{base(name)}" in row.operators and release >= row.since and not over and not small:
            return Answer(Outcome.UNKNOWN, f"it may meet a bug there: {row.title} ({row.id})")
    return FINE


def calls(recording: Recording, made_by: Release) -> Iterator[Subject]:
    """The recorded calls by line, operator and dtype; then what the release that made the recording refused."""
    fallback = bool(recording.run.fallback)
    seen: dict[tuple[object, ...], tuple[Signature, Site, str]] = {}
    sizes: dict[tuple[object, ...], float] = {}
    for signature, site in recording.distinct_calls():
        if signature.operator.startswith("aten::") and signature.fate not in (Fate.MISSING, Fate.REFUSED):
            dtype = first_dtype(signature.inputs, signature.outputs)
            operator = _FROM_PYTHON.get(site.via, signature.operator)
            group = site.file_line, operator, dtype
            seen.setdefault(group, (replace(signature, operator=operator), site, dtype))
            sizes[group] = max(sizes.get(group, 0), elements(signature) or inf)
    for place, (signature, site, dtype) in seen.items():
        yield _call(signature, site, dtype, sizes[place], made_by, fallback=fallback)
        yield from _limited(signature.operator, dtype, site, made_by)
    told: set[tuple[object, ...]] = set()
    texts = {hazard.text for hazard in all_hazards() if hazard.text}
    for refusal in recording.refusals():
        key = (refusal.kind, refusal.operator, refusal.site.file_line)
        if key not in told and refusal.message not in texts:  # those are known bugs, which the mark before them tells
            told.add(key)
            yield _refused(refusal, made_by, fallback=fallback)


def elements(signature: Signature) -> int:
    """Those of the first tensor, `float32[2, 3]`; 0 where its size was not kept."""
    try:
        return read_tensor(signature.inputs[0]).elements if signature.inputs else 0
    except CostError:
        return 0


def _call(signature: Signature, site: Site, dtype: str, size: float, made_by: Release, *, fallback: bool) -> Subject:
    operator, name = signature.operator, signature.operator.removeprefix("aten::")
    native = signature.fate in (Fate.NATIVE, Fate.COPY, Fate.WAIT)
    inner = native and not _has_kernel(name, made_by)  # made of others, or for sparse tensors

    def answers(release: Release, _: Release) -> Answer:
        if release == made_by:
            return FINE if native else Answer(Outcome.ON_CPU)
        if inner and not _has_kernel(name, release):
            return _by_dtype(operator, dtype, release)
        return call_answer(operator, dtype, release, fallback=fallback or signature.fate is Fate.FALLBACK, size=size)

    return Subject(site, operator, dtype, answers=answers)


def _limited(operator: str, dtype: str, site: Site, made_by: Release) -> Iterator[Subject]:
    """Limits of other releases that the recording does not tell: the release that made it has none of them."""
    told = {row.text.text for row in REFUSED_DTYPES} | {row.text for row in all_hazards()} | _limits(made_by)
    for name, limit in OPERATOR_LIMITS.items():
        dtypes = [_LIMITED_TO[word] for word in name.split() if word in _LIMITED_TO]
        concerned = base(operator) in limit.operators and (not dtypes or dtype in dtypes) and not limit.refused_before
        if concerned and limit.error == "RuntimeError" and limit.text not in told:
            yield Subject(site, operator, dtype, title=limit.text, answers=partial(_limit_answer, limit.text))


def _limit_answer(text: str, release: Release, _: Release) -> Answer:
    return Answer(Outcome.UNKNOWN, f"it refuses some arguments: {text}") if text in _limits(release) else FINE


@lru_cache(maxsize=16)
def _limits(release: Release) -> frozenset[str]:
    """The texts of the limits of a release; none of one that was not read."""
    read = OLDEST <= release <= NEWEST
    return frozenset(limit.text for limit in in_force(OPERATOR_LIMITS.values(), release)) if read else frozenset()


def _refused(refusal: Refusal, made_by: Release, *, fallback: bool) -> Subject:
    """A call that raised when it was recorded. Its dtype is not recorded, but the backend's words tell of it."""
    operator, kind = refusal.operator, refusal.kind
    raised = Answer(Outcome.REFUSED, f"{refusal.error}: {refusal.message}")
    rows = [limit for limit in OPERATOR_LIMITS.values() if limit.text == refusal.message]
    dtypes = [dtype for dtype in SCALAR_TYPES if _dtype_refusal(operator, dtype, made_by) == refusal.message]

    def answers(release: Release, _: Release) -> Answer:
        read = OLDEST <= release <= NEWEST
        if kind is RefusalKind.MISSING:
            return call_answer(operator, "", release, fallback=fallback)
        if release == made_by:
            return raised
        if kind is RefusalKind.FLOAT64 and _to_the_cpu(refusal) and release >= _CPU_FLOAT64:
            return Answer(Outcome.UNKNOWN, "copies to float64 on the CPU are another thing there (MPS604)")
        if kind in _ALWAYS:
            return raised
        if kind is RefusalKind.DTYPE and dtypes and read:
            found = {call_answer(operator, dtype, release, fallback=fallback) for dtype in dtypes}
            if len({answer.outcome for answer in found}) == 1:
                return found.pop()
        if kind is RefusalKind.INDEX:
            return raised if release >= _INDEX_CHECKED else Answer(Outcome.WRONG, "a bad index is not noticed")
        if kind is RefusalKind.COMPLEX128 and min(release, made_by) >= _NO_COMPLEX128:
            return raised
        if kind is RefusalKind.DETERMINISM and read:
            return raised if base(operator) in alerts(named(release)) else FINE
        if kind is RefusalKind.ARGUMENT and rows and read:
            return raised if in_force(rows, release) else FINE
        return Answer(Outcome.UNKNOWN, f"whether it raises there, too, is not known: {refusal.message}")

    dtype = dtypes[0] if len(dtypes) == 1 else ""
    return Subject(refusal.site, operator, dtype, title=refusal.message, answers=answers)


def _to_the_cpu(refusal: Refusal) -> bool:
    """Whether the line seems to copy from mps to the CPU."""
    return "cpu" in refusal.site.source or "copy_" in refusal.site.source


def _by_dtype(operator: str, dtype: str, release: Release) -> Answer:
    """Whether the operator takes the dtype. Of releases before the oldest that was read, its refusal makes unsure."""
    text = _dtype_refusal(operator, dtype, max(release, OLDEST))
    if not text and (_is_rare(dtype) or _is_listed_elsewhere(operator, dtype, release)):
        return Answer(Outcome.UNKNOWN, f"whether its kernel takes {dtype} there was not looked up")
    if text and release < OLDEST:
        return Answer(Outcome.UNKNOWN, f"torch {named(OLDEST)} refuses it, and nobody looked before: {text}")
    return Answer(Outcome.REFUSED, text) if text else FINE


def _has_kernel(name: str, release: Release) -> bool:
    """Whether an overload has a kernel for dense tensors."""
    return not _DENSE.isdisjoint(registered(release).get(name, ()))


def _dtype_refusal(operator: str, dtype: str, release: Release) -> str:
    """The backend's words where it refuses the dtype; empty where it takes it, and for a release that was not read."""
    if not dtype or not OLDEST <= release <= NEWEST:
        return ""
    names = (operator.removeprefix("aten::"), base(operator), base(operator).removesuffix("_"))
    texts = (refused_dtype(name, dtype, named(release)) for name in dict.fromkeys(names))
    return next((text.text for text in texts if text is not None), "")


def _is_listed_elsewhere(operator: str, dtype: str, release: Release) -> bool:
    """Whether mps takes the dtype in some release although the CPU does not, and in this one nobody says so."""
    releases = [(OLDEST[0], minor) for minor in range(OLDEST[1], NEWEST[1] + 1)]
    names = (base(operator), base(operator).removesuffix("_"))
    listed = {each for each in releases for name in names if dtype in widened_dtypes(name, named(each))}
    return bool(listed) and max(release, OLDEST) not in listed


def _is_rare(dtype: str) -> bool:
    """Whether only some kernels have it, by release (`rules/metal_dtypes.toml`)."""
    return dtype in ("uint16", "uint32", "uint64") or dtype.startswith("float8")
