"""What a training step's dispatches take beside those of single operators: one factor, from public steps.

Timings of single operators repeat one call, mostly without gradients. In a training step autograd keeps a node for each
call and runs it, Python runs modules and the optimizer, and no two calls in a row are alike. How much each of these
takes is not known; that such steps take longer is, wherever the host decides.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from step_tapes import read as read_tape
from times_fit import mac_of, network_of, read_steps, step_calls

from anymps.cost import Happening, WalkedStep
from anymps.cost._coefficients import Coefficients, from_json, torch_release
from anymps.cost._predict import trains
from anymps.cost._walk import walked_step

SLOWER = tuple(1 + tenth / 10 for tenth in range(9))  # the factors to choose from; nothing finer is known
UNKNOWN_CAUSE = 0.4  # in logarithms; judgement


def training_hosts(data: dict[str, Any], others: dict[str, dict[str, Any]]) -> tuple[float, dict[str, float]]:
    """How much longer dispatches take in a training step: by all such steps, and for each network by those of others.

    A step that is off by more than half as much again has another cause, so it pulls no more than that.
    """
    lines = read_steps()
    training = [line for line in lines if trains(call for call, _ in step_calls(line["tape"]))]
    lost = np.array([[min(abs(one), UNKNOWN_CAUSE) for one in logarithms(training, data, others, x)] for x in SLOWER])
    networks = np.array([network_of(line["tape"]) for line in training])
    sources = np.array([line["source_url"] for line in training])
    found = {}
    for network in sorted({network_of(line["tape"]) for line in lines}):
        own = {line["source_url"] for line in lines if network_of(line["tape"]) == network}
        apart = (networks != network) & ~np.isin(sources, list(own))
        found[network] = SLOWER[int(np.argmin(lost[:, apart].sum(axis=1)))]
    return SLOWER[int(np.argmin(lost.sum(axis=1)))], found


def logarithms(
    lines: list[dict[str, str]], data: dict[str, Any], others: dict[str, dict[str, Any]], slower: float
) -> list[float]:
    """The logarithms of measured to predicted of steps whose dispatches take so much longer."""
    found = []
    for line in lines:
        coefficients = from_json(data | others.get(network_of(line["tape"]), {}) | {"training_host": slower})
        found.append(float(np.log(float(line["milliseconds"]) / 1e3 / walked_line(line, coefficients).seconds)))
    return found


def walked_line(line: dict[str, str], coefficients: Coefficients) -> WalkedStep:
    """What is predicted for a public step time."""
    mac = mac_of(line["chip"], line["gpu_cores"])
    return walked_step(happenings_of(line), mac, torch_release(line["torch"]), coefficients)


def happenings_of(line: dict[str, str]) -> list[Happening]:
    """The calls and waits of a step in their order; the waits of the benchmark that are not on the tape end it."""
    step = read_tape(line["tape"])
    waits = int(line["waits"]) - sum(happening.waits for happening in step)
    return [*step, *[Happening("wait", waits=True)] * waits]
