"""How torch's database of operators is asked, on a database of a few entries made up here."""

from __future__ import annotations

import base64
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from anymps.verify.cases import Case, _samples
from anymps.verify.cases._answering import digest_of, in_turn

pytestmark = pytest.mark.usefixtures("virtual_device")


def sample(given: Any, *args: Any, **kwargs: Any) -> SimpleNamespace:
    """One sample as the database has them."""
    return SimpleNamespace(input=given, args=args, kwargs=kwargs)


def entry(name: str, op: Any, samples: Any, **more: Any) -> SimpleNamespace:
    """One operator as the database has it."""
    about = {"full_name": name, "aten_name": "", "supports_autograd": True, "error_inputs_func": None, **more}
    return SimpleNamespace(name=name, op=op, sample_inputs=samples, **about)


def numbered(count: int) -> Any:
    """As many samples: tensors of their numbers."""
    return lambda device, dtype: (sample(torch.full((2,), at, dtype=dtype, device=device)) for at in range(count))


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], Any]:
    """An empty database."""
    entries: dict[tuple[str, str], Any] = {}
    monkeypatch.setattr(_samples, "database", lambda: entries)
    _samples._draws.cache_clear()
    return entries


def answers(entries: dict[tuple[str, str], Any], info: Any) -> dict[str, Any]:
    """What the cases of one entry answer, by their identities."""
    entries[info.full_name, ""] = info
    return {case.id: case.ask() for case in _samples.database_cases()}


def values(results: list[dict[str, Any]]) -> list[str]:
    return [one["digest"] for one in results]


def of(*numbers: float, dtype: torch.dtype = torch.float32) -> str:
    """The digest of a result."""
    from anymps.verify.cases import answered

    return str(answered(lambda: torch.tensor(numbers, dtype=dtype), 10)["results"][0]["digest"])


def test_which_cases_an_operator_has(made_up: dict[tuple[str, str], Any]) -> None:
    """Ten dtypes forward; two of them backward, and wrong inputs, where the database knows of that."""
    info = entry("neg", torch.neg, numbered(1), error_inputs_func=print, error_inputs=lambda device: ())
    made_up["neg", ""] = info
    names = ["float32", "float16", "int64", "bool", "bfloat16", "complex64", "int32", "uint8", "int16", "int8"]
    whole = [f"forward neg {name}" for name in names] + ["gradient neg float32", "gradient neg float16", "errors neg"]
    assert [case.id for case in _samples.database_cases()] == whole
    info.supports_autograd, info.error_inputs_func = False, None
    assert [case.id for case in _samples.database_cases()] == whole[:10]


def test_operators_that_fall_back_are_asked_first(made_up: dict[tuple[str, str], Any]) -> None:
    """Those known to have no kernel, then the others."""
    for name in ("neg", "special.airy_ai", "abs"):
        made_up[name, ""] = entry(name, torch.neg, numbered(1))
    assert [case.id.split()[1] for case in _samples.fallback_cases()] == ["special.airy_ai", "neg", "abs"]
    assert _samples.fallback_cases()[1].ask()["samples"][0]["does"] == "computes"


def test_each_round_asks_every_row_at_another_place() -> None:
    """So a run that its time cuts off has a bit of everything."""
    rows = [[Case(name, dict) for name in names.split()] for names in ("a1 a2 a3", "b1 b2 b3", "c1", "")]
    assert [case.id for case in in_turn(rows)] == ["a1", "b2", "c1", "a2", "b3", "a3", "b1"]
    assert in_turn([]) == []


@pytest.mark.slow
def test_the_first_questions_of_the_database_are_of_all_sorts() -> None:
    pytest.importorskip("numpy")
    ids = [case.id for case in _samples.database_cases()]
    assert len(ids) == len(set(ids))
    first = [identity.split(" ") for identity in ids[:300]]
    assert {words[0] for words in first} == {"forward", "gradient", "errors"}
    assert len({words[-1] for words in first if words[0] == "forward"}) == 10


def test_three_of_the_first_twelve_samples_are_asked(made_up: dict[tuple[str, str], Any]) -> None:
    """The first, the one in the middle and the last; fewer where there are no more, and none is said."""
    for count, expected in ((30, [0, 6, 11]), (5, [0, 2, 4]), (2, [0, 1]), (1, [0])):
        found = answers(made_up, entry("clone", torch.clone, numbered(count)))["forward clone float32"]
        assert [values(one["results"]) for one in found["samples"]] == [[of(at, at)] for at in expected]
        assert found["operator"] == "clone"
    large = entry("clone", torch.clone, lambda *_: [sample(torch.ones(17))])
    (only,) = answers(made_up, large)["forward clone float32"]["samples"]
    assert len(base64.b64decode(only["results"][0]["values"])) == 16 * 4
    nothing = {"does": "unasked", "text": "the database has no samples"}
    info = entry("clone", torch.clone, numbered(0))
    assert answers(made_up, info)["forward clone float32"] == nothing


def test_a_sample_that_cannot_be_made_is_not_asked(made_up: dict[tuple[str, str], Any]) -> None:
    """The CPU may have no kernel for it: no answer of the device."""

    def refuse(device: str, dtype: torch.dtype) -> Any:
        raise RuntimeError("not for Half")

    info = entry("neg", torch.neg, refuse)
    refused = {"does": "unasked", "error": "RuntimeError", "text": "not for Half"}
    assert answers(made_up, info)["forward neg float16"] == refused


def test_what_a_sample_was_asked_with(made_up: dict[tuple[str, str], Any]) -> None:
    """A digest of all its strided tensors, after their float32 was cut; the name of the kernel if given."""
    x, y = torch.tensor([1 / 3, 2.0]), torch.ones(2, 2).to_sparse()
    info = entry("first", lambda x, *_, **__: x, lambda *_: [sample(x, 3, more=y)], aten_name="aten_first")
    found = answers(made_up, info)["forward first float32"]
    (one,) = found["samples"]
    assert found["operator"] == "aten_first"
    assert one["inputs"] == digest_of([_samples.portable(x)]) != digest_of([x])


def test_a_gradient_is_asked_with_weights_of_its_own(made_up: dict[tuple[str, str], Any]) -> None:
    """From -3/4 to 3/4 in order; of each input that can have one; none of what has none."""
    given = torch.ones(2, 4)
    info = entry("mul", torch.mul, lambda *_: [sample(given, torch.full((2, 4), 2.0))])
    (one,) = answers(made_up, info)["gradient mul float32"]["samples"]
    weights = [-0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75, -0.75]
    expected = [torch.tensor(weights).view(2, 4) * factor for factor in (2, 1)]
    assert values(one["results"]) == [of(*each.flatten().tolist()) for each in expected]
    counted = entry("argmax", torch.argmax, lambda *_: [sample(given)])
    (none,) = answers(made_up, counted)["gradient argmax float32"]["samples"]
    assert none["results"] == []


def test_random_numbers_are_compared_by_their_looks_alone(made_up: dict[tuple[str, str], Any]) -> None:
    """Also memory that nobody wrote to; an operator that draws in its second sample only is random, too."""
    drawing = entry("rand_like", torch.rand_like, numbered(1))
    found = answers(made_up, drawing)["forward rand_like float32"]
    assert found["samples"][0]["results"] == [{"dtype": "float32", "shape": [2], "strides": [1]}]
    empty = answers(made_up, entry("empty_like", torch.zeros_like, numbered(1)))["forward empty_like float32"]
    assert "values" not in empty["samples"][0]["results"][0]

    def sometimes(x: torch.Tensor) -> torch.Tensor:
        if int(x[0]) == 1:
            raise RuntimeError("not this one")
        return torch.rand_like(x) if int(x[0]) == 3 else x

    late = answers(made_up, entry("late", sometimes, numbered(4)))["forward late float32"]
    assert "digest" not in late["samples"][0]["results"][0]
    still = answers(made_up, entry("still", lambda x: x, numbered(4)))["forward still float32"]
    assert "digest" in still["samples"][0]["results"][0]


def test_each_sample_is_drawn_from_the_same_seed(made_up: dict[tuple[str, str], Any]) -> None:
    """On the CPU, where samples are made, and on the device, before each call."""

    def drawn(device: str, dtype: torch.dtype) -> Any:
        return [sample(torch.rand(3))]

    info = entry("same", lambda x: x, drawn)
    first = answers(made_up, info)["forward same float32"]["samples"]
    torch.manual_seed(99)
    assert answers(made_up, info)["forward same float32"]["samples"] == first
    torch.manual_seed(0)
    assert first[0]["inputs"] == digest_of([_samples.portable(torch.rand(3))])


def test_indices_of_tensor_split_stay_on_the_cpu(made_up: dict[tuple[str, str], Any]) -> None:
    """It takes them from nowhere else, on every device."""
    places: list[list[str]] = []

    def noted(*given: torch.Tensor) -> torch.Tensor:
        places.append([one.device.type for one in given])
        return given[0]

    given = (torch.arange(6.0), torch.tensor([2]), torch.ones(1))
    for name in ("tensor_split", "other"):
        info = entry(name, noted, lambda *_: [sample(*given)])
        answers(made_up, info)[f"forward {name} float32"]
    assert places.count(["mps", "cpu", "mps"]) > 0
    assert places[-1] == ["mps", "mps", "mps"]


def test_wrong_inputs(made_up: dict[tuple[str, str], Any]) -> None:
    """Up to forty; one that cannot be made ends the list and is not asked."""

    def wrong(device: str) -> Any:
        assert device == "mps:0"
        for _ in range(50):
            yield SimpleNamespace(sample_input=sample(torch.ones(2, device="mps"), 5))

    info = entry("sum", torch.sum, numbered(1), error_inputs_func=print, error_inputs=wrong)
    found = answers(made_up, info)["errors sum"]
    assert found["operator"] == "sum"
    assert [one["error"] for one in found["samples"]] == ["IndexError"] * 40

    def ends(device: str) -> Any:
        yield SimpleNamespace(sample_input=sample(torch.ones(2, device="mps"), 5))
        yield SimpleNamespace(sample_input=sample(torch.ones(2, device="mps"), 0))
        raise TypeError("not on mps")

    info = entry("sum", torch.sum, numbered(1), error_inputs_func=print, error_inputs=ends)
    refused, fine, unasked = answers(made_up, info)["errors sum"]["samples"]
    assert refused["error"] == "IndexError"
    assert fine["results"] == [{"dtype": "float32", "shape": [], "strides": []}]
    assert unasked == {"does": "unasked", "error": "TypeError", "text": "not on mps"}
