"""The check of a run: wrong numbers that are planted in the device are found, at their lines; nothing else is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import anymps
from anymps._errors import EnableError, UsageError
from anymps.findings import Finding, find
from anymps.numerics import _session, start_checking, stop_checking
from processes import run_python

pytestmark = pytest.mark.usefixtures("mps_device")


@pytest.fixture(autouse=True)
def comparable(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where something other than the CPU computes."""
    monkeypatch.setattr(_session, "can_differ", lambda current: True)


@contextmanager
def planted(operator: str, kernel: Callable[..., Any]) -> Iterator[None]:
    """Within this, the device computes an operator with this kernel."""
    library = torch.library.Library("aten", "IMPL", "MPS")  # type: ignore[no-untyped-call]
    library.impl(operator, kernel)
    try:
        yield
    finally:
        library._destroy()


def wrong_erfc(x: torch.Tensor) -> torch.Tensor:
    return 1 - x.erf()


def wrong_exp_(x: torch.Tensor) -> torch.Tensor:
    return x.copy_(x.log1p())


def nan_sqrt(x: torch.Tensor) -> torch.Tensor:
    return x * float("nan")


def found_in(body: Callable[[], object]) -> list[Finding]:
    """The findings about numbers of what `body` runs."""
    with anymps.record() as capture, anymps.check_numbers("all"):
        body()
    return [finding for finding in find(capture.recording) if finding.id.startswith("MPS69")]


def test_what_is_right_gives_no_finding() -> None:
    def program() -> None:
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.GELU(), torch.nn.MaxPool2d(2),
            torch.nn.Flatten(), torch.nn.LayerNorm(72), torch.nn.Dropout(0.1), torch.nn.Linear(72, 10),
        ).to("mps")  # fmt: skip
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for _ in range(3):
            x, y = torch.randn(4, 3, 8, 8, device="mps"), torch.randint(10, (4,), device="mps")
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    with anymps.check_numbers("all") as checked:
        program()
    assert checked.found == []
    assert checked.compared > 100


def test_a_wrong_number_is_found_at_its_line() -> None:
    x = torch.linspace(-1, 5, 100, device="mps").reshape(10, 10)
    with planted("erfc", wrong_erfc):
        (finding,) = found_in(lambda: x.erfc())
    assert finding.id == "MPS696"
    assert finding.site.file == __file__
    assert "x.erfc()" in finding.site.source
    pattern = (
        r"`aten::erfc` of float32 \[10, 10\] got \d+ of 100 elements wrong \(\d+ %\)\. The worst, at \[\d, \d\], "
        r"is \S+; the CPU computes \S+\. Rounding allows an error of \S+ \(32\.5 ulp of float32\)\."
    )
    assert re.fullmatch(pattern, finding.what), finding.what
    assert "Metal Shading Language Specification 4.1, table 8.1" in finding.source


def test_nan_is_louder_than_a_wrong_number_and_what_follows_is_folded_in() -> None:
    x = torch.full((4,), 2.0, device="mps")

    def program() -> None:
        x.erfc()
        x.sqrt()

    with planted("erfc", wrong_erfc), planted("sqrt", nan_sqrt):
        first, second = found_in(program)
    assert (first.id, second.id) == ("MPS695", "MPS696")
    assert "is nan; the CPU computes 1.41421356" in first.what

    def chain() -> None:
        y = x.erfc()
        (y + 2).erfc()
        y.sqrt()

    with planted("erfc", wrong_erfc), planted("sqrt", nan_sqrt):
        first, second = found_in(chain)
    assert (first.id, second.id) == ("MPS696", "MPS696")  # `y + 2` is right of the y that there was
    assert "Later results computed from it are wrong too: `aten::sqrt`." in first.what
    assert first.related_as == "its result is used at"
    assert ["y.sqrt()" in site.source for site in first.related_sites] == [True]


def test_an_operator_in_place_is_computed_from_what_was_there_before() -> None:
    x = torch.ones(3, device="mps")
    with planted("exp_", wrong_exp_):
        (finding,) = found_in(lambda: x.exp_())
    assert finding.what.startswith("`aten::exp_` of float32 [3] got 3 of 3 elements wrong (100 %).")


def test_a_backward_is_checked_too() -> None:
    def wrong(gradient: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return gradient * y

    x = torch.randn(5, device="mps", requires_grad=True)
    with planted("tanh_backward", wrong):
        (finding,) = found_in(lambda: x.tanh().sum().backward())
    assert "tanh_backward` of float32 [5] and [5], strides [0], in the backward pass, got" in finding.what


def test_an_index_that_the_cpu_refuses() -> None:
    """A finding, and a caller that listens hears its line."""

    def reads_past_the_end(weight: torch.Tensor, *arguments: Any) -> tuple[torch.Tensor, ...]:
        return tuple(weight.new_zeros(2, 4) for _ in range(4))

    weight = torch.randn(10, 4, device="mps")
    bags, starts = torch.tensor([0, 3, 10], device="mps"), torch.tensor([0, 2], device="mps")

    def program() -> None:
        torch.nn.functional.embedding_bag(bags, weight, starts, mode="sum")

    heard: list[tuple[str, bool]] = []
    with planted("_embedding_bag_forward_only", reads_past_the_end):
        (finding,) = found_in(program)
        with anymps.record():
            start_checking("all", lambda found, site: heard.append((found.kind, site > 0)))
            program()
            stop_checking()
    assert finding.id == "MPS698"
    assert finding.what.startswith("`aten::_embedding_bag_forward_only` ran once, but the CPU rejects it: ")
    assert heard == [("refused", True)]


def test_random_numbers_and_uninitialised_memory_are_left_out() -> None:
    before = torch.mps.get_rng_state()
    with anymps.check_numbers("all") as checked:
        torch.empty(1000, device="mps")
        torch.rand(1000, device="mps")
        torch.nn.functional.dropout(torch.ones(100, device="mps"))
    assert checked.found == []
    assert checked.left_out.get("random numbers", 0) >= 2
    assert list(checked.left_out) == ["random numbers"]
    torch.mps.set_rng_state(before)


def test_the_check_changes_no_random_number_and_records_nothing_of_its_own() -> None:
    def program() -> torch.Tensor:
        torch.manual_seed(5)
        x = torch.randn(20, 20, device="mps", requires_grad=True)
        torch.nn.functional.layer_norm(x, (20,)).sum().backward()
        return torch.rand(4, device="mps").cpu() + torch.rand(4)

    with anymps.record() as plain:
        expected = program()
    with anymps.record() as checked, anymps.check_numbers("all"):
        found = program()
    assert torch.equal(expected, found)
    counts = [[(use.name, use.count) for use in run.recording.operators()] for run in (plain, checked)]
    assert counts[0] == counts[1]


def test_of_a_signature_the_first_three_calls_are_compared_then_at_doubling_distances() -> None:
    x = torch.ones(7, device="mps")
    with anymps.check_numbers() as checked:
        counts = []
        for _ in range(20):
            x.erfc()
            counts.append(checked.compared)
    compared = [call for call in range(1, 21) if counts[call - 1] > (counts[call - 2] if call > 1 else 0)]
    assert compared == [1, 2, 3, 5, 9, 17]


def test_a_bad_index_still_raises_at_the_programs_next_wait() -> None:
    """The check reads what the program changes in place: that is no wait of the program's."""
    x = torch.arange(5.0, device="mps")
    with anymps.record(), anymps.check_numbers("all"):
        taken = x[torch.tensor([1, 9], device="mps")]
        taken.add_(1)
        with pytest.raises(torch.AcceleratorError, match="index 9 is out of bounds for dimension 0 with size 5"):
            taken.tolist()


def test_outside_of_a_recording_it_is_told_on_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    x = torch.full((2,), 3.0, device="mps")
    with planted("erfc", wrong_erfc), anymps.check_numbers() as checked:
        for _ in range(2):
            x.erfc()
    assert [found.operator for found in checked.found] == ["aten::erfc"] * 2
    line = next(line for line in capfd.readouterr().err.splitlines() if line.startswith("anymps: "))
    assert re.fullmatch(
        r"anymps: \S+test_check\.py:\d+: aten::erfc of float32 got 2 of 2 elements wrong, 2 times; worst at \[0\]: "
        r"\S+, but the CPU computes 2\.2090497e-05 \(allowed: 32\.5 ulp of float32\)",
        line,
    ), line


def test_words_and_a_second_check_are_refused() -> None:
    with pytest.raises(UsageError, match="check_numbers: 'most' must be some or all"):
        anymps.check_numbers("most").__enter__()  # type: ignore[arg-type]
    with anymps.check_numbers(), pytest.raises(EnableError, match="this process's numbers are already being checked"):
        anymps.check_numbers().__enter__()


HOST = """
import torch, anymps
anymps.enable("M3 Pro 18GB")
with anymps.check_numbers() as checked:
    torch.ones(3, device="mps").exp()
print(checked.found, checked.compared)
"""


def test_where_the_cpu_computes_there_is_nothing_to_compare() -> None:
    run = run_python(HOST)
    assert run.lines == ["[] 0"]
    assert run.err.splitlines()[-1] == (
        "anymps: check-numbers: this machine's CPU computes everything, so there is nothing to compare; add "
        "--kernels real (PyTorch's own Metal kernels) or --substrate cuda (an NVIDIA GPU), or run on a Mac"
    )


def test_the_card_is_compared_with_the_cpu() -> None:
    code = HOST.replace('"M3 Pro 18GB"', '"M3 Pro 18GB", substrate="cuda"')
    run = run_python(code, {"ANYMPS_GPU": "cpu"})
    assert run.lines == ["[] 2"]
