"""How well the ratio between two Macs is predicted: pairs of timings of the same calls, and of the same steps.

Both predictions of a pair are by fits that saw neither that chip nor those shapes on any machine.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from times_fit import KERNELS, MATRIX, Row

HELD = 0.8  # of the pairs, by an interval that is as wide upwards as downwards: which Mac is first means nothing


class Pairs:
    """Timings of the same calls on two chips by the same era of torch, and by how much the predicted ratio is off."""

    def __init__(self, rows: list[Row], residuals: Any, chosen: Any) -> None:
        alike: dict[tuple[str, str, str], list[int]] = {}
        for place in np.flatnonzero(chosen):
            alike.setdefault(
                (rows[place].text, rows[place].mode, "" if rows[place].era == "1.13" else "new"), []
            ).append(place)
        found = [
            (a, b)
            for group in alike.values()
            for a, b in combinations(group, 2)
            if rows[a].mac.chip != rows[b].mac.chip
        ]
        self.off = np.array([abs(residuals[a] - residuals[b]) for a, b in found])
        self.times = np.abs(np.array([[residuals[a] for a, _ in found], [residuals[b] for _, b in found]]))
        self.kinds = np.array([rows[a].kind for a, _ in found])
        self.chips = np.array([sorted((rows[a].mac.chip, rows[b].mac.chip)) for a, b in found])
        self.same_torch = np.array([rows[a].release.number == rows[b].release.number for a, b in found])

    def interval(self, chosen: Any = True) -> float:
        """What HELD of the pairs by one release of torch stay within, in logarithms."""
        return float(np.quantile(self.off[self.same_torch & chosen], HELD))

    def wider(self, few: int, for_few: float, widest: float) -> dict[str, float]:
        """What each class needs beside that, as a logarithm that is added as a square; of all pairs of the era."""
        usual = float(np.quantile(self.off, HELD))
        found = {}
        for name in (*MATRIX, *KERNELS):
            own = self.off[self.kinds == name]
            spread = float(np.quantile(own, HELD)) if len(own) else 0.0
            least = for_few if len(own) < few else 0.0
            found[name] = round(max(least, min(widest, max(0.0, spread**2 - usual**2) ** 0.5)), 2)
        return found

    def figures(self, wider: dict[str, float]) -> dict[str, float]:
        """What the page tells of the pairs by one release; `held` is by intervals from pairs without both chips."""
        held = []
        for place in np.flatnonzero(self.same_torch):
            others = ~np.isin(self.chips, self.chips[place]).any(axis=1)
            if np.any(others & self.same_torch):
                held.append(self.off[place] <= np.hypot(self.interval(others), wider[str(self.kinds[place])]))
        off = np.expm1(self.off[self.same_torch])
        times = np.expm1(np.concatenate([self.times[0][self.same_torch], self.times[1][self.same_torch]]))
        return {
            "pairs": int(np.sum(self.same_torch)),
            "chips": len(np.unique(self.chips[self.same_torch])),
            "median": round(float(np.median(off)), 3),
            "eight_tenths": round(float(np.quantile(off, HELD)), 3),
            "times_median": round(float(np.median(times)), 3),
            "times_eight_tenths": round(float(np.quantile(times, HELD)), 3),
            "held": round(float(np.mean(held)), 3),
            **self._by_generation(),
        }

    def _by_generation(self) -> dict[str, float]:
        """What HELD of the ratios within a generation of chips stay below, and of those between two."""
        generations = np.array([[chip.split()[1] for chip in pair] for pair in self.chips])
        one = generations[:, 0] == generations[:, 1]
        return {
            "pairs_one_generation": int(np.sum(self.same_torch & one)),
            "one_generation": round(float(np.expm1(self.interval(one))), 3),
            "two_generations": round(float(np.expm1(self.interval(~one))), 3),
        }


def same_steps(lines: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Places of the steps that were timed on two Macs by the same release of torch."""

    def key(line: dict[str, Any]) -> tuple[str, list[str]]:
        return line["tape"], line["torch"].split(".")[:2]

    return [(a, b) for a, b in combinations(range(len(lines)), 2) if key(lines[a]) == key(lines[b])]
