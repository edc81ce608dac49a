"""Known bugs of the real backend: calls that it computes wrong, slowly or not at all, by torch, macOS and GPU.

Only what the call itself shows is here (layout, sizes, dtypes, arguments), and only what releases since 2.7 have.
The virtual device computes the right result and notes the call. The rows are in `faults.toml`; the native core
recognises a call by the row's `check`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from anymps._tables import read_table
from anymps.rules._encoding import Family
from anymps.rules._limits import OPERATOR_LIMITS
from anymps.rules._readings import Release, ranged, release_of
from anymps.rules._versions import TorchVersion, check_supported, parse_torch_version
from anymps.rules.faults._model import COMPILED_LAYER_NORM, ELSEWHERE, NO_END, SIZE, THREADS, Effect, Hazard

HazardRow = tuple[str, str, int, int, tuple[str, ...], int, str, str]
"""(id, check, low, high, operators, Family or -1, exception, text): one hazard for the native core."""


def hazards(torch_version: str | TorchVersion, macos: Release, metal_family: str) -> tuple[Hazard, ...]:
    """The hazards in force on a Mac; `metal_family` is `apple7` (M1), `apple8` (M2) and so on.

    None of a release that is let through although nobody has looked at it: a fault is not assumed.
    Raises UnsupportedTorchError outside the supported range of torch.
    """
    check_supported(torch_version)
    release = parse_torch_version(torch_version).release
    return tuple(hazard for hazard in all_hazards() if hazard.holds(release, macos, metal_family))


def elsewhere(known: Collection[Hazard]) -> tuple[Hazard, ...]:
    """Every other hazard, as `elsewhere.MPS615@2.11` for the row of MPS615 since torch 2.11, and with no text to raise.

    The device only notes the calls that meet them: another release of torch, macOS or GPU has the fault. Those of
    `SIZE` are not among them: a recorded call's signature tells, and a mark for each product would be many.
    """
    own = frozenset(known)
    others = (hazard for hazard in all_hazards() if hazard not in own and hazard.check != SIZE)
    return tuple(replace(row, id="{}{}@{}.{}".format(ELSEWHERE, row.id, *row.since), text="") for row in others)


_OF_VALUES: Final = frozenset({Effect.WRONG, Effect.MAY_BE_WRONG, Effect.VARIES})


def hazards_with_kernels(
    torch_version: str | TorchVersion,
    kernels_torch: str | TorchVersion,
    computed: Collection[str],
    macos: Release,
    metal_family: str,
) -> tuple[Hazard, ...]:
    """The hazards in force where the Metal kernels of another release compute the operators `computed` (base names).

    A wrong value of these operators is that release's; how torch refuses, aborts or hangs, and every other operator,
    stays the installed release's. Raises UnsupportedTorchError outside the supported range of torch.
    """
    own = hazards(torch_version, macos, metal_family)
    others = hazards(kernels_torch, macos, metal_family)
    kept = (_of_operators(hazard, computed, inside=False) for hazard in own)
    added = (_of_operators(hazard, computed, inside=True) for hazard in others if hazard.effect in _OF_VALUES)
    found = [hazard for hazard in (*kept, *added) if hazard is not None]
    return tuple(sorted(found, key=lambda hazard: hazard.id))


def _of_operators(hazard: Hazard, computed: Collection[str], *, inside: bool) -> Hazard | None:
    """What is left of a hazard of values for the operators inside or outside of `computed`; None if nothing is."""
    if hazard.effect not in _OF_VALUES:
        return hazard
    left = tuple(name for name in hazard.operators if (name in computed) is inside)
    if left == hazard.operators and (left or not inside):
        return hazard
    return replace(hazard, operators=left) if left else None


@lru_cache(maxsize=1)
def all_hazards() -> tuple[Hazard, ...]:
    """Every known hazard, by number."""
    return tuple(sorted(map(_hazard, read_table(__file__, "faults.toml")["fault"]), key=lambda hazard: hazard.id))


def _hazard(given: dict[str, Any]) -> Hazard:
    """A row of the file. `limit` names the one in `OPERATOR_LIMITS` whose text and first release it has."""
    limit = OPERATOR_LIMITS[given.pop("limit")] if "limit" in given else None
    words = {
        "effect": Effect[given["effect"].upper()],
        "family": Family[given["family"].upper()] if "family" in given else None,
        "macos": tuple(map(_range, given.get("macos", ()))),
        "metal_families": frozenset(given.get("metal_families", ())),
        "factor": tuple(given.get("factor", (1.0, 1.0))),
        "begins": "since" in given,
    }
    if "seen" in given:
        words["since"] = given.pop("seen")
    hazard = ranged(Hazard, {"operators": (), "issues": (), **given, **words})
    return hazard if limit is None else replace(hazard, text=limit.text, since=limit.since)


def _range(macos: list[str]) -> tuple[Release, Release]:
    """The first macOS that has it, and the first later one without it."""
    first, *after = map(release_of, macos)
    return first, after[0] if after else NO_END


def hazard_table(known: tuple[Hazard, ...]) -> tuple[HazardRow, ...]:
    """Hazards as plain rows for the native core."""
    return tuple(
        (
            hazard.id,
            hazard.check,
            hazard.low,
            hazard.high,
            hazard.operators,
            -1 if hazard.family is None else int(hazard.family),
            hazard.error,
            hazard.text,
        )
        for hazard in known
        if hazard.check not in (THREADS, COMPILED_LAYER_NORM)
    )
