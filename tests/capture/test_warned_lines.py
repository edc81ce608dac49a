"""Torch's warnings name the same line with a recording and without one: nothing of ours stands in between."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import anymps

pytestmark = pytest.mark.usefixtures("virtual_device")


class Longer(IterableDataset[int]):
    """Gives more than it says."""

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


def read_too_much() -> None:
    loader = DataLoader(Longer())
    assert len(loader) == 1  # it compares with what it has said
    for _ in loader:
        pass


def step_with_a_closure() -> None:
    weight = torch.nn.Parameter(torch.ones(2, device="mps"))

    def closure() -> torch.Tensor:
        warnings.warn("of the closure's caller", stacklevel=2)
        return (weight * 2).sum()

    torch.optim.LBFGS([weight], max_iter=1).step(closure)


WARNED: dict[str, Callable[[], object]] = {
    "autocast of a dtype that mps lacks": lambda: torch.autocast("mps", dtype=torch.float64),
    "autocast of another device": lambda: torch.autocast("cuda"),
    "an old autocast": lambda: torch.cuda.amp.autocast(),
    "a scaler": lambda: torch.amp.GradScaler("cuda"),
    "an old scaler": lambda: torch.cuda.amp.GradScaler(),
    "backward": lambda: torch.autograd.backward(
        torch.ones(1, device="mps", requires_grad=True) * 2, grad_variables=[torch.ones(1, device="mps")]
    ),
    "a graph that is kept": lambda: (torch.ones((), device="mps", requires_grad=True) * 2).backward(create_graph=True),
    "a loader": read_too_much,
    "a closure": step_with_a_closure,
    "an operator": lambda: torch.nn.functional.mse_loss(torch.ones(2, device="mps"), torch.ones(2, 1, device="mps")),
    "an operator's C++ code": lambda: torch.add(torch.ones(2, device="mps"), 1, out=torch.ones(3, device="mps")),
}


def warned(function: Callable[[], object], source: str | None = None) -> list[tuple[str, str, int]]:
    """What is warned of, its beginning, and where."""
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if source is None:
                function()
            else:
                with anymps.record(source=source):
                    function()
    finally:
        torch.set_warn_always(always)
    return [(str(warning.message)[:40], warning.filename, warning.lineno) for warning in caught]


@pytest.mark.parametrize("source", ["native", "observer"])
@pytest.mark.parametrize("name", list(WARNED))
def test_a_warning_names_the_line_that_it_names_without_a_recording(name: str, source: str) -> None:
    """Text, file and line are the same."""
    alone = warned(WARNED[name])
    assert alone
    assert alone == warned(WARNED[name], source)


def test_what_is_watched_looks_like_itself() -> None:
    """While a recording runs, watched functions keep their names, texts and signatures."""
    before = [
        (function.__name__, function.__doc__, inspect.signature(function))
        for function in (torch.compile, torch.autograd.backward)
    ]
    with anymps.record():
        during = [
            (function.__name__, function.__doc__, inspect.signature(function))
            for function in (torch.compile, torch.autograd.backward)
        ]
    assert before == during


def test_what_a_watched_call_raises_is_passed_on() -> None:
    """An error of a watched call comes out as it is, with no frame of ours on its way, and what it gives as well."""
    with anymps.record():
        with pytest.raises(ValueError, match="some parameters appear in more than one parameter group") as caught:
            weight = torch.nn.Parameter(torch.ones(2))
            torch.optim.SGD([{"params": [weight]}, {"params": [weight]}])
        assert not [entry for entry in caught.traceback if "anymps/record" in str(entry.path)]
