"""How wide the intervals of predicted times are, by rows and steps whose chip, model or source was left out."""

from __future__ import annotations

from typing import Any

import numpy as np
from times_fit import ROWS, network_of
from times_ratios import HELD

from anymps.cost import WalkedStep

FEW = 5  # timings; a class with fewer rests on what is known of its like
WIDER_FOR_FEW = 0.4  # in logarithms; judgement
HARD = 0.5  # in logarithms: what is so much wider has no part in the interval of the others; judgement
WIDEST = 1.5  # a fifth to four and a half times: there the interval says that nothing is known
UNKNOWN = 2.0  # how far the interval of a step reaches before its own is known
GPU = ("compute", "bandwidth")  # what a step is bound by where the GPU decides; else it is the host


def quantiles(residuals: Any) -> tuple[float, float]:
    low, high = np.exp(np.quantile(residuals, [0.1, 0.9]))
    return round(float(low), 2), round(float(high), 2)


def wider(own: Any, overall: Any) -> float:
    """What a class's interval needs beside that of all, in logarithms that are added as squares."""
    if not len(own):
        return WIDER_FOR_FEW
    spread, usual = (float(np.mean(np.abs(np.quantile(part, [0.1, 0.9])))) for part in (own, overall))
    least = WIDER_FOR_FEW if len(own) < 4 else 0.0
    return round(max(least, min(WIDEST, max(0.0, spread**2 - usual**2) ** 0.5)), 2)


def held(twice: Any, small: Any, usual: Any, chosen: Any, wider: dict[str, float]) -> float:
    """The share of the chosen rows, left out with their sources, within the 80 % interval of what other sources give.

    `twice` are the residuals of all rows with their chips and with their sources left out; `usual` are those that an
    interval is made of.
    """
    sources = np.array([row.source for row in ROWS])
    inside = np.zeros(len(ROWS), dtype=bool)
    for source in np.unique(sources):
        for own in (small, ~small):
            low, high = np.log(quantiles(twice[usual & np.tile(own & (sources != source), 2)]))
            for place in np.flatnonzero(chosen & own & (sources == source)):
                off, width = twice[len(ROWS) + place], wider[ROWS[place].kind]
                inside[place] = -np.hypot(low, width) <= off <= np.hypot(high, width)
    return round(float(np.mean(inside[chosen])), 3)


def step_intervals(walked: list[tuple[dict[str, str], WalkedStep]]) -> dict[str, Any]:
    """The intervals of steps that the GPU and that the host decide, and how many steps those of other models hold.

    As far up as down, as there are too few steps for two ends. Steps of one model are off alike, and so are those that
    one person timed. So an end that holds a share of the others holds fewer of the next: that share is raised until
    HELD of all are held by those of other models and sources.
    What waits and classes that are hard to predict add to a step's interval is no part of what is left for these:
    `walked` has intervals of UNKNOWN with all that added.
    """
    off = np.array([abs(np.log(float(line["milliseconds"]) / 1e3 / time.seconds)) for line, time in walked])
    whole = np.array([np.log(time.high / time.seconds) for _, time in walked])
    added = np.maximum(0.0, whole**2 - np.log(UNKNOWN) ** 2)
    left = np.sqrt(np.maximum(0.0, off**2 - added))
    gpu = np.array([time.bound in GPU for _, time in walked])
    models = np.array([network_of(line["tape"]) for line, _ in walked])
    sources = np.array([line["source_url"] for line, _ in walked])

    def end(chosen: Any, share: float) -> float:
        return float(np.quantile(left[chosen], share, method="weibull"))  # of the next one, not of those that are there

    for share in np.arange(HELD, 1.0, 0.01):
        others = [
            end((gpu == gpu[i]) & (models != models[i]) & (sources != sources[i]), share) for i in range(len(off))
        ]
        inside = off <= np.sqrt(np.square(others) + added)
        if np.mean(inside) >= HELD:
            break
    return {
        **{
            f"step, {name}": (round(float(np.exp(-end(chosen, share))), 2), round(float(np.exp(end(chosen, share))), 2))
            for name, chosen in (("GPU", gpu), ("host", ~gpu))
        },
        "held": {
            name: [int(np.sum(inside[chosen])), int(np.sum(chosen))] for name, chosen in (("GPU", gpu), ("host", ~gpu))
        },
    }
