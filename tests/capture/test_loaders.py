"""What is recorded of loaders: their settings, where they were made, and what cannot be sent to workers."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from noted import noted
from processes import ENABLE, run_with_torch

pytestmark = pytest.mark.usefixtures("virtual_device")


class Rows(Dataset[torch.Tensor]):
    """Eight rows, through a function."""

    def __init__(self, transform: Callable[[torch.Tensor], torch.Tensor] | None = None) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(2)


def loader_facts(**options: object) -> dict[str, object]:
    """What is noted of a loader that is used once."""
    dataset = options.pop("dataset", Rows())

    def use() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            iter(DataLoader(dataset, batch_size=4, **options))  # type: ignore[arg-type]

    (loader,) = noted(use, "loader")
    return dict(loader.facts)


def test_loader_without_workers() -> None:
    """Its settings, and nothing about processes."""
    assert loader_facts(pin_memory=True) == {"workers": 0, "pin_memory": True, "persistent": False}


def test_where_a_loader_was_made() -> None:
    """The other line of a loader's mark is the one that made it."""

    def use() -> None:
        loader = DataLoader(Rows(), batch_size=4)  # made
        for _ in loader:
            pass

    (loader,) = noted(use, "loader")
    assert loader.other.source.endswith("# made")


def test_loader_behind_a_progress_bar() -> None:
    """It belongs to the loop, not to the line of the bar's package that goes through it."""
    names: dict[str, Callable[[object], Iterator[object]]] = {}
    bar = "def bar(batches):\n    yield from batches\n"
    exec(compile(bar, "/lib/site-packages/tqdm/std.py", "exec"), names)

    def use() -> None:
        for _ in names["bar"](DataLoader(Rows(), batch_size=4)):  # loop
            pass

    (loader,) = noted(use, "loader")
    site = loader.occurrence.site
    assert (site.file, site.function, site.source.endswith("# loop")) == (__file__, "use", True)


def local_collate(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(rows)


@pytest.mark.parametrize(
    ("options", "unpicklable"),
    [
        ({}, ""),
        ({"collate_fn": local_collate}, ""),
        ({"collate_fn": functools.partial(torch.stack, dim=0)}, ""),
        ({"collate_fn": lambda rows: torch.stack(rows)}, "collate_fn"),
        ({"worker_init_fn": lambda number: None}, "worker_init_fn"),
        ({"dataset": Rows(lambda row: row)}, "dataset.transform"),
        ({"dataset": torch.utils.data.Subset(Rows(lambda row: row), range(4))}, "dataset.dataset.transform"),
        ({"dataset": Rows(functools.partial(lambda row, by: row, by=2))}, "dataset.transform.func"),
    ],
)
def test_what_cannot_be_sent_to_workers(options: dict[str, object], unpicklable: str) -> None:
    """Lambdas and local functions, wherever the loader or its data set holds them; no worker is spawned here."""
    facts = loader_facts(num_workers=1, multiprocessing_context="fork", **options)
    assert (facts["workers"], facts["start_method"]) == (1, "fork")
    assert "unpicklable" not in facts  # a forked worker is sent nothing
    from anymps.capture._habits import _unpicklable

    loader = DataLoader(options.pop("dataset", Rows()), num_workers=1, **options)  # type: ignore[arg-type]
    given = {name: getattr(loader, name) for name in ("collate_fn", "worker_init_fn", "dataset")}
    assert _unpicklable(given) == unpicklable


@pytest.mark.parametrize(
    ("dataset", "collate", "on_mps"),
    [
        (lambda: torch.utils.data.TensorDataset(torch.ones(4)), None, ""),
        (lambda: torch.utils.data.TensorDataset(torch.ones(4).to("mps")), None, "dataset.tensors[0]"),
        (lambda: [{"x": torch.ones(1, device="mps")}], None, "dataset[0]['x']"),
        (Rows, lambda: functools.partial(torch.add, torch.ones(1, device="mps")), "collate_fn.args[0]"),
    ],
)
def test_what_workers_are_given_on_mps(
    dataset: Callable[[], object], collate: Callable[[], object] | None, on_mps: str
) -> None:
    """Tensors on mps in the data set or in the arguments of a function for it; a batch that is moved later is none."""
    from anymps.capture._habits import _on_mps

    loader = DataLoader(dataset(), num_workers=1, collate_fn=collate() if collate is not None else None)  # type: ignore[arg-type, call-overload]
    assert _on_mps({"dataset": loader.dataset, "collate_fn": loader.collate_fn}) == on_mps


@pytest.mark.parametrize(
    ("thing", "noted_once"),
    [
        (lambda: torch.ones(2, device="mps"), True),
        (lambda: (3, {"x": [torch.ones(2, device="mps")]}), True),
        (lambda: torch.ones(2), False),
        (lambda: "mps", False),
    ],
)
def test_what_a_queue_is_given_on_mps(thing: Callable[[], object], noted_once: bool) -> None:
    """At the line that puts it there: the queue's own thread sends it later, and nobody hears what torch says."""
    queue = torch.multiprocessing.get_context("spawn").Queue()
    queue._start_thread = lambda: None  # nothing is sent
    queue._thread = object()
    given = thing()

    def use() -> None:
        for _ in range(2):
            queue.put(given)  # here

    sent = noted(use, "sent")
    assert [told.occurrence.site.source for told in sent] == ["queue.put(given)  # here"] * noted_once


GUARDED = """
import torch, anymps
from torch.utils.data import DataLoader
{enable}
def main():
    for x in DataLoader(torch.rand(4, 2), num_workers=1):
        pass
with anymps.record() as capture:
    {call}
(loader,) = capture.recording.noted("loader")
print(loader.facts["guarded"], repr(loader.facts["start_method"]))
"""


@pytest.mark.parametrize(
    ("call", "expected"),
    [("main()", "False ''"), ("if __name__ == '__main__': main()", "False ''"), ("pass", None)],
)
def test_scripts_without_a_guard(call: str, expected: str | None, tmp_path: Path) -> None:
    """Whether the script's own line lies under `if __name__ == "__main__"` at its top level."""
    script = tmp_path / "train.py"
    text = GUARDED.format(enable=ENABLE, call=call)
    if expected is None:
        text = text.replace("with anymps.record()", "if __name__ == '__main__':\n  with anymps.record()")
        text = text.replace("    pass\n(loader", "    main()\n(loader")
        expected = "True ''"
    script.write_text(text)
    code = f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')"
    answer = run_with_torch(code, {"ANYMPS_START_METHOD": "fork"})
    assert answer.lines[-1] == expected
