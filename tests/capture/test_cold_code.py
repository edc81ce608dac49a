"""What code costs that a step runs once, beside what it costs at once again."""

from __future__ import annotations

import pytest

from anymps.capture import _looks
from anymps.capture._looks import cold_code


@pytest.mark.parametrize(
    ("runs", "told"), [((60, 12), (60.0, 12.0)), ((10, 12), (12.0, 12.0)), ((0, 0), (0.001, 0.001))]
)
def test_a_first_run_stands_beside_a_second(
    runs: tuple[int, int], told: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second one that was held up is no slower than the first, and a clock that stands still tells something."""
    left = [1000 * each for each in runs]
    monkeypatch.setattr(_looks, "_piece", lambda: left.pop(0))
    assert cold_code() == told


def test_the_piece_takes_processor_time() -> None:
    """What other programs take of the core is not in it."""
    assert 0 < _looks._piece() < 1_000_000_000
