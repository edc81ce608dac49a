"""Fits the predicted times to public timings, and writes what they are worth: one command, some seconds.

    python benchmarks/fit_times.py            # writes src/anymps/cost/coefficients.json and docs/fidelity-times.md
    python benchmarks/fit_times.py --check    # writes nothing; fails if the files say something else
    python benchmarks/fit_times.py --check --coefficients    # the same without the accuracy: one fit, not 100

Every figure is of machines that the fit did not see: for each chip the coefficients are fitted to the others, and its
rows are predicted with them. Intervals go by sources that the fit did not see, too (`times_intervals.py`). What a wait
takes in a table of timings says nothing of an operator, so that one number is taken from the table itself; rows in
which the wait is the larger part are not scored. Steps that are part of the fit are predicted by a fit without any step
of their network, and each step by one without the timings of its source.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices: on a busy machine more threads only wait

import numpy as np
from step_tapes import read as read_tape
from times_fit import (
    GRADIENTS,
    INDEX,
    ROWS,
    STEPS,
    Arrays,
    Row,
    as_data,
    fit,
    mac_of,
    network_of,
    read_steps,
)
from times_intervals import FEW, HARD, UNKNOWN, WIDER_FOR_FEW, WIDEST, held, quantiles, step_intervals, wider
from times_page import page
from times_ratios import Pairs, same_steps

from anymps.cost import Happening, WalkedStep, speed_ratio
from anymps.cost._coefficients import OWN_KERNEL, Coefficients, from_json, torch_release
from anymps.cost._kernel import change_of
from anymps.cost._walk import walked_step

ROOT = Path(__file__).parents[1]
COEFFICIENTS = ROOT / "src" / "anymps" / "cost" / "coefficients.json"
PAGE = ROOT / "docs" / "fidelity-times.md"

SMALL = 1e-3
ONE_CHIP = 1.1  # how far apart two people's times on Macs with the same chip and cores are; judgement, see the page


def table_waits(x: Any, rows: list[Row]) -> Any:
    """The parameters with each table's own wait: the one number that is taken from rows left out."""
    arrays, x = Arrays(rows), x.copy()
    places = np.arange(len(x))
    for place in np.unique(arrays.table):
        if place == INDEX["one"]:
            continue
        inside = arrays.table == place

        def cost(value: float, place: int = place, inside: Any = inside) -> float:
            off = (arrays.predict(np.where(places == place, value, x)) - arrays.measured)[inside] / 0.22
            return float(np.sum(np.minimum(np.abs(off), 3)) + 0.5 * (value / 0.35) ** 2)

        x[place] = min(np.linspace(-1.2, 1.2, 49), key=cost)
    return x


HALVES = {text: number % 2 for number, text in enumerate(sorted({row.text for row in ROWS}))}


@cache
def fit_without(chip: str, half: int | None = None) -> Any:
    """The parameters that the timings of all other chips give, or of the other half of the shapes on these."""
    rows = [row for row in ROWS if row.mac.chip != chip and HALVES[row.text] != half]
    return fit(rows, [step for step in STEPS if step.mac.chip != chip])


Fold = tuple[list[int], Any]
"""Places of rows, and the parameters of a fit that did not see them."""


def chips_left_out(*, shapes: bool, chips: bool = True) -> Iterator[Fold]:
    """The rows of each chip, and a fit without it.

    With `shapes` it has not seen the rows' shapes on any machine either; without `chips` it has seen others on theirs.
    """
    for chip in sorted({row.mac.chip for row in ROWS}):
        for half in (0, 1) if shapes else (None,):
            places = [i for i, row in enumerate(ROWS) if row.mac.chip == chip and half in (None, HALVES[row.text])]
            yield places, fit_without(chip if chips else "", half)


def sources_left_out() -> Iterator[Fold]:
    """The rows of each source, and a fit that saw nothing of it."""
    for source in sorted({row.source for row in ROWS}):
        rows, steps = ([row for row in part if row.source != source] for part in (ROWS, STEPS))
        yield [i for i, row in enumerate(ROWS) if row.source == source], fit(rows, steps)


def left_out(folds: Iterable[Fold]) -> tuple[Any, Any, list[float]]:
    """Logarithm of measured to predicted of every row, by the fit of its fold, and the operator's share of it.

    Beside these, the logarithms of what a wait takes in each table to what is predicted.
    """
    residuals, shares = np.zeros(len(ROWS)), np.zeros(len(ROWS))
    waits: list[float] = []
    for places, parameters in folds:
        rows = [ROWS[i] for i in places]
        x, arrays = table_waits(parameters, rows), Arrays(rows)
        waits += [float(x[place]) for place in np.unique(arrays.table) if place != INDEX["one"]]
        predicted = arrays.predict(x)
        residuals[places] = arrays.measured - predicted
        device = np.bincount(arrays.row_of, arrays.kernels(x[arrays.place]), arrays.count)
        shares[places] = device / np.exp(predicted)
    return residuals, shares, waits


def figures(residuals: Any, chosen: Any) -> dict[str, float]:
    """Median error, the error that nine tenths stay below, and the share within a half, of the rows chosen."""
    error = np.abs(np.expm1(-residuals[chosen]))
    return {
        "rows": int(np.sum(chosen)),
        "median": round(float(np.median(error)), 3),
        "nine_tenths": round(float(np.quantile(error, 0.9)), 3),
        "within_half": round(float(np.mean(error <= 0.5)), 3),
    }


def kernel_of(row: Row) -> tuple[str, bool]:
    """The class of most of a row's time, and whether it is a kernel of PyTorch's own that is timed for itself."""
    work = max(row.works, key=lambda work: work.size + work.operations / 35)
    return work.kind, change_of(work, row.mac, row.release) == OWN_KERNEL


def on_one_chip(scored: Any) -> Any:
    """Rows of kernels that one chip alone was timed with: with that left out, their prior is all that predicts them."""
    chips: dict[tuple[str, bool], set[str]] = {}
    for row in (ROWS[place] for place in np.flatnonzero(scored)):
        chips.setdefault(kernel_of(row), set()).add(row.mac.chip)
    return np.array([len(chips.get(kernel_of(row), ())) < 2 for row in ROWS])


def evaluate() -> dict[str, Any]:
    """All that the page and the coefficients hold."""
    known, shares, waits = left_out(chips_left_out(shapes=False))
    unknown, unknown_shares, _ = left_out(chips_left_out(shapes=True))
    on_chip, *_ = left_out(chips_left_out(shapes=True, chips=False))
    foreign, foreign_shares, _ = left_out(sources_left_out())
    scored = shares > 0.5
    alone = on_one_chip(scored)
    also = (unknown_shares > 0.5) & ~alone
    new = np.array([row.era != "1.13" for row in ROWS])
    arrays = Arrays(ROWS)
    small = np.exp(arrays.measured) < SMALL
    kinds = np.array([row.kind for row in ROWS])
    chips = np.array([row.mac.chip.removeprefix("Apple ") for row in ROWS])
    x = fit(ROWS, STEPS)
    data = as_data(x, ROWS)
    apart = fits_without_steps()
    step_arrays = Arrays(STEPS)
    by_step = np.array(
        [step_arrays.measured[i] - step_arrays.predict(apart[step.network])[i] for i, step in enumerate(STEPS)]
    )
    # Each row is left out twice: with its chip and shapes, and with its source.
    twice, chosen = np.concatenate([unknown, foreign]), np.concatenate([also, foreign_shares > 0.5])
    of, recent = np.tile(kinds, 2), np.tile(new, 2)
    usual = chosen & recent
    for _ in range(2):  # the second time without the classes that are hard to predict, which have their own
        data["wider"] = {
            name: wider(twice[chosen & (of == name)], twice[usual]) if timings >= FEW else WIDER_FOR_FEW
            for name, timings in data["rows"].items()
        }
        data["wider"] |= {name: wider(by_step, twice[usual]) for name in GRADIENTS}
        usual = chosen & recent & np.array([data["wider"][kind] < HARD for kind in of])
    data["new_chip"] = wider(unknown[also & new], on_chip[also & new])
    data["intervals"] = {
        "below 1 ms": quantiles(twice[usual & np.tile(small, 2)]),
        "1 ms and above": quantiles(twice[usual & ~np.tile(small, 2)]),
        "wait": quantiles(waits),
    }
    pairs = Pairs(ROWS, unknown, also & new)
    off = round(float(np.exp(pairs.interval())), 2)
    data["intervals"]["ratio"] = (round(1 / off, 4), off)
    data["intervals"]["ratio, one chip"] = (round(1 / ONE_CHIP, 4), ONE_CHIP)
    data["between"] = pairs.wider(FEW, WIDER_FOR_FEW, WIDEST)
    data["accuracy"] = {
        "rows": len(ROWS),
        "scored": int(np.sum(scored)),
        "all": figures(known, scored),
        "on several chips": figures(known, scored & ~alone),
        "on one chip": figures(known, scored & alone),
        "torch 2.5 and later": figures(known, scored & new),
        "torch 1.13 to 2.4": figures(known, scored & ~new),
        "below 1 ms": figures(known, scored & small),
        "1 ms and above": figures(known, scored & ~small),
        "shapes left out too": figures(unknown, also),
        "shapes left out too, torch 2.5 and later": figures(unknown, also & new),
        "wait predicted too": figures(blind(), np.ones(len(ROWS), dtype=bool)),
        "class": {str(kind): figures(known, scored & (kinds == kind)) for kind in np.unique(kinds[scored])},
        "chip": {str(chip): figures(known, scored & (chips == chip)) for chip in np.unique(chips[scored])},
        "held": held(twice, small, usual, (foreign_shares > 0.5) & new, data["wider"]),
    }
    data["intervals"] |= {f"step, {name}": (1 / UNKNOWN, UNKNOWN) for name in ("GPU", "host")}  # to be found
    others = {network: unseen(network, parameters, data) for network, parameters in apart.items()}
    found = step_intervals(walked_steps(data, others))
    data["accuracy"]["steps held"] = found.pop("held")
    data["intervals"] |= found
    walked = walked_steps(data, others)
    data["accuracy"]["steps"] = steps(walked)
    data["accuracy"]["ratio"] = {**pairs.figures(data["between"]), "steps": ratios(walked)}
    return data


def fits_without_steps() -> dict[str, Any]:
    """By network the parameters of a fit that saw none of its steps, and no timing from where they come.

    Networks without any of these are left out: the fit has not seen them.
    """
    seen = {step.network for step in STEPS}
    found = {}
    for network in sorted({network_of(line["tape"]) for line in read_steps()}):
        rows = rows_without(network)
        if network in seen or len(rows) < len(ROWS):
            found[network] = fit(rows, [step for step in STEPS if step.network != network])
    return found


def unseen(network: str, parameters: Any, data: dict[str, Any]) -> dict[str, Any]:
    """What the coefficients are without a network: classes that no other timing is of are as wide as those of few."""
    found = as_data(parameters, rows_without(network))
    few = {name: WIDER_FOR_FEW for name, timings in found["rows"].items() if timings < FEW and name not in GRADIENTS}
    return found | {"wider": {name: max(width, few.get(name, 0.0)) for name, width in data["wider"].items()}}


@cache
def rows_without(network: str) -> list[Row]:
    """The timings of other sources than those of a network's steps."""
    own = {line["source_url"] for line in read_steps() if network_of(line["tape"]) == network}
    return [row for row in ROWS if row.source not in own]


def walked_line(line: dict[str, str], coefficients: Coefficients) -> WalkedStep:
    """What is predicted for a public step time; the waits of its benchmark that are not on the tape end it."""
    step = read_tape(line["tape"])
    waits = int(line["waits"]) - sum(happening.waits for happening in step)
    step += [Happening("wait", waits=True)] * waits
    return walked_step(step, mac_of(line["chip"], line["gpu_cores"]), torch_release(line["torch"]), coefficients)


def walked_steps(data: dict[str, Any], others: dict[str, dict[str, Any]]) -> list[tuple[dict[str, str], WalkedStep]]:
    """Every public step time, and what is predicted for it: by `others` if the fit has seen its network or source."""
    found: list[tuple[dict[str, str], WalkedStep]] = []
    for line in read_steps():
        time = walked_line(line, from_json(data | others.get(network_of(line["tape"]), {})))
        assert time.covered, (line["tape"], time.left_out)
        found.append((line, time))
    return found


def steps(walked: list[tuple[dict[str, str], WalkedStep]]) -> list[dict[str, Any]]:
    """The steps as the page tells them."""
    return [
        {
            "tape": line["tape"],
            "mac": f"{line['chip']}, {line['gpu_cores']} cores",
            "torch": line["torch"],
            "loader": line["loader"] == "yes",
            "source": line["source_url"],
            "measured": float(line["milliseconds"]),
            "predicted": float(f"{1e3 * time.seconds:.3g}"),
            "low": float(f"{1e3 * time.low:.3g}"),
            "high": float(f"{1e3 * time.high:.3g}"),
            "bound": time.bound,
        }
        for line, time in walked
    ]


def ratios(walked: list[tuple[dict[str, str], WalkedStep]]) -> list[dict[str, Any]]:
    """How many times as fast the second Mac of each pair is as the first: measured, and predicted."""
    found = []
    for a, b in same_steps([line for line, _ in walked]):
        (first, slow), (second, fast) = walked[a], walked[b]
        ratio = speed_ratio(fast, slow)
        found.append(
            {
                "tape": first["tape"],
                "macs": [f"{line['chip']}, {line['gpu_cores']} cores" for line in (first, second)],
                "measured": float(f"{float(first['milliseconds']) / float(second['milliseconds']):.3g}"),
                **{
                    name: float(f"{value:.3g}") for name, value in zip(("predicted", "low", "high"), ratio, strict=True)
                },
            }
        )
    return found


def blind() -> Any:
    """As `left_out`, with the wait of each table predicted like everything else."""
    residuals = np.zeros(len(ROWS))
    for chip in sorted({row.mac.chip for row in ROWS}):
        places = [i for i, row in enumerate(ROWS) if row.mac.chip == chip]
        arrays = Arrays([ROWS[i] for i in places])
        residuals[places] = arrays.measured - arrays.predict(fit_without(chip))
    return residuals


def differences(old: Any, new: Any, path: str = "") -> list[str]:
    """Where two trees of numbers differ by more than another machine's arithmetic may make them."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = sorted({*old, *new})
        return [line for key in keys for line in differences(old.get(key), new.get(key), f"{path}/{key}")]
    if isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)) and len(old) == len(new):
        return [line for a, b in zip(old, new, strict=True) for line in differences(a, b, path)]
    if isinstance(old, (str, bool)):
        return [] if old == new else [f"{path}: {old} in the file, {new} now"]
    same = isinstance(old, (int, float)) and isinstance(new, (int, float)) and abs(old - new) <= 0.01 * abs(old) + 0.003
    return [] if same else [f"{path}: {old} in the file, {new} now"]


def main() -> int:
    """Fit, and write or check."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the files say something else")
    parser.add_argument("--coefficients", action="store_true", help="with --check: leave out how accurate they are")
    arguments = parser.parse_args()
    if arguments.coefficients and not arguments.check:
        parser.error("--coefficients goes with --check: the file holds how accurate they are, too")
    data = as_data(fit(ROWS, STEPS), ROWS) if arguments.coefficients else evaluate()
    text = json.dumps(data, indent=1) + "\n"
    if not arguments.coefficients:
        for name, values in data["accuracy"].items():
            print(f"{name}: {values}")
        print("intervals:", data["intervals"])
    if arguments.check:
        kept = json.loads(COEFFICIENTS.read_text(encoding="utf-8"))
        wrong = differences({name: kept.get(name) for name in data}, json.loads(text))
        if not arguments.coefficients and kept.keys() != data.keys():
            wrong.append(f"the file holds {sorted(kept.keys() - data.keys())}, too")
        if page(kept, ROWS) != PAGE.read_text(encoding="utf-8"):
            wrong.append("docs/fidelity-times.md is not the page of these coefficients")
        print("\n".join(wrong) or "the files say the same")
        return 1 if wrong else 0
    COEFFICIENTS.write_text(text, encoding="utf-8")
    PAGE.write_text(page(json.loads(text), ROWS), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
