"""The `cuda` substrate against `host`: the same results, bits, errors and counters, case by case."""

from __future__ import annotations

import functools
import re
from typing import Any

import pytest

from gpu.cases import CASES
from gpu.sides import FAILED, SIDE, run

TOLERANCES = {
    "losses": (2e-3, 1e-4),  # 20 steps of AdamW on sums of two orders
    "autocast": (1e-2, 2e-3),
}
"""Relative and absolute, by the first word of a case; all others get 1e-4 and 1e-5."""


AT_ONCE = "anymps: this check|Target|should be between"


@functools.cache
def sides(group: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """All cases of a group, on the host and on the GPU."""
    names = [name for name in CASES if name.partition("_")[0] == group]
    return run("host", names), run(SIDE, names)


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    """Texts are equal; numbers within the tolerance of their group."""
    group = name.partition("_")[0]
    host, gpu = (side[name] for side in sides(group))
    assert not (isinstance(host, str) and host.startswith(("the process ended", FAILED))), host
    if group == "index" and isinstance(host[0], str) and re.search(AT_ONCE, host[0]):
        # Where MPS does not look at all, the host raises at once and the GPU at the next wait: other words, as loud.
        assert re.search("out of (bounds|range)|should be between 0 and 1", gpu[0]), gpu
        assert gpu[1:] == host[1:]
        return
    same(gpu, host, *TOLERANCES.get(group, (1e-4, 1e-5)))


def test_the_first_steps_agree_closely() -> None:
    """Before any optimizer has made a difference larger, losses agree to five digits."""
    host, gpu = sides("losses")
    for name in host:
        same(gpu[name][:3], host[name][:3], 2e-5, 1e-6)


def same(found: Any, wanted: Any, relative: float, absolute: float) -> None:
    """Compares plain data."""
    if isinstance(wanted, list) and isinstance(found, list):
        assert len(found) == len(wanted), (found, wanted)
        for one, other in zip(found, wanted, strict=True):
            same(one, other, relative, absolute)
    elif isinstance(wanted, float) and isinstance(found, float | int):
        assert found == pytest.approx(wanted, rel=relative, abs=absolute, nan_ok=True)
    else:
        assert found == wanted
