"""What each case asks of torch: a Mac's file stays comparable only as long as a case of the same name asks the same.

`tests/data/asked` has the calls by kind and case. A case that shall ask something else gets another name. Then
`PYTHONPATH=tests:. python tests/verify/test_what_is_asked.py` writes the files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch

from anymps.device import enable, is_virtual
from anymps.verify.cases import (
    FAULT_CALLS,
    LAID,
    MATRICES,
    OPERATORS,
    ROWS,
    TIMED_CALLS,
    WAITING,
    FaultCall,
    TimedCall,
    _fault_calls,
    _memory,
    _pairs,
    _streams,
    _timed_calls,
    _values,
    inputs,
    matrices,
)
from anymps.verify.cases._answering import digest_of
from anymps.verify.cases._moving import portable
from anymps.verify.cases._values import DTYPES
from processes import MAC
from questions import Noted, heard, told, until_refused

FOLDER = Path(__file__).parents[1] / "data" / "asked"
READS_VALUES = {"MPS601", "MPS631", "MPS691"}
"""Faults whose call goes on only where its tensors have values."""
RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])


@contextmanager
def without_the_device(lines: list[str]) -> Iterator[None]:
    """Functions about the device itself are only noted; memory has fixed sizes."""
    noted = {
        "torch.mps": dict.fromkeys(("Event", "manual_seed", "empty_cache", "synchronize", "get_rng_state"), None),
        "torch.accelerator": {"empty_host_cache": None, "synchronize": None, "empty_cache": None},
    }
    noted["torch.mps"] |= {"set_per_process_memory_fraction": None}
    noted["torch.mps"] |= {"recommended_max_memory": 1 << 34, "driver_allocated_memory": 1 << 20}
    kinds = ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")
    noted["torch.accelerator"] |= dict.fromkeys(kinds, 0)
    with (
        patch.multiple("torch.mps", **_stand_ins("mps", noted["torch.mps"], lines)),
        patch.multiple("torch.accelerator", **_stand_ins("accelerator", noted["torch.accelerator"], lines)),
    ):
        yield


def _stand_ins(module: str, names: dict[str, Any], lines: list[str]) -> dict[str, Noted]:
    found = getattr(torch, module)
    return {name: Noted(lines, f"{module}.{name}", value) for name, value in names.items() if hasattr(found, name)}


def faults() -> Iterator[str]:
    """The call of each known fault, what stands for the CPU's result, and what it needs."""
    for identity, call in FAULT_CALLS.items():
        with heard() as lines, without_the_device(lines), patched_faults(lines):
            until_refused(lambda identity=identity, call=call: call.call("cpu" if identity in READS_VALUES else "meta"))
        if call.expected:
            with heard() as more:
                call.expected()
            lines = [*lines, "expected", *more]
        yield f"{identity} ({about(call)}): {told(lines)}"


def about(call: FaultCall) -> str:
    """What is known of the call beside itself."""
    words = [name for name in ("varies", "raises", "by_rule") if getattr(call, name)]
    return ", ".join([*words, f"{call.bytes_needed / (1 << 30):g} GiB"])


@contextmanager
def patched_faults(lines: list[str]) -> Iterator[None]:
    """Inputs of whole numbers are one line; threads run one after another; nothing is compiled."""
    made = _fault_calls._made

    def numbers(device: str, *shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
        count = len(lines)
        found = made(device, *shape, dtype=dtype, grad=grad)
        del lines[count:]
        lines.append(f"numbers {str(dtype).removeprefix('torch.')}{list(shape)}{' grad' if grad else ''}")
        return found

    def compiled(model: Any) -> Any:
        lines.append("compile")
        return model

    def thread(target: Any) -> SimpleNamespace:
        return SimpleNamespace(start=target, join=lambda: lines.append("join"))

    with (
        patch.object(_fault_calls, "_made", numbers),
        patch.object(torch, "compile", compiled),
        patch.object(_fault_calls, "threading", SimpleNamespace(Thread=thread)),
    ):
        yield


def waits() -> Iterator[str]:
    """Each call and what is made for it, with the waits that it has in some releases."""
    for name, case in WAITING.items():
        with heard("cpu") as lines, without_the_device(lines):
            given = case.make()
            lines.append("ask")
            until_refused(lambda case=case, given=given: case.call(*given))
        kinds = ", ".join(sorted(wait.name.lower() for wait in case.waits)) or "none"
        since, until = (".".join(map(str, release)) for release in (case.since, case.until))
        yield f"{name} (waits: {kinds}; {since} to {until}): {told(lines)}"


def memory() -> Iterator[str]:
    """Each script with its notes, each limit, and the variables of each process."""
    for title, script in _memory._SCRIPTS.items():
        with heard("meta") as lines, without_the_device(lines):
            script(lambda what, lines=lines: lines.append(f"note {what}"))
        yield f"{title}: {told(lines)}"
    for title, call in (*_memory._LIMITS.items(), ("a first tensor", _memory._first_tensor)):
        with heard("meta") as lines, without_the_device(lines):
            until_refused(call)
        yield f"{title}: {told(lines)}"
    for environment in _memory._ENVIRONMENTS:
        yield " ".join(f"{name}={value}" for name, value in environment.items())


def streams() -> Iterator[str]:
    """Each fill of a float32 tensor and each call, over its sizes and seeds; and how many values are kept."""
    for case in _streams.stream_cases():
        if case.id.startswith("fill ") and not case.id.endswith(" float32"):
            yield case.id
            continue
        with heard() as lines, without_the_device(lines):

            def hear(call: Any, keep: int, lines: list[str] = lines, **more: Any) -> dict[str, Any]:
                lines.append(f"keep {keep}")
                until_refused(call)
                return {}

            with patch.object(_streams, "answered", hear):
                case.ask()
        yield f"{case.id}: {told(lines)}"


def pairs() -> Iterator[str]:
    """Each operator and each call over rows, on small inputs; then a digest of what they are asked with, by dtype."""
    x, matrix = torch.zeros(3), torch.zeros(4, 6)
    for operator in OPERATORS:
        with heard() as lines:
            until_refused(lambda operator=operator: operator.call(*[x] * operator.tensors))
        flags = [name for name in ("divides", "shifts", "orders") if getattr(operator, name)]
        words = ", ".join([f"kernel {operator.kernel}", f"alpha {operator.alpha}", *flags])
        yield f"pair {operator.title} ({words}): {told(lines)}"
    for title, (call, over) in ROWS.items():
        with heard() as lines:
            until_refused(lambda call=call: call(matrix))
        yield f"rows {title} ({'each dimension' if over else 'the last dimension'}): {told(lines)}"
    for at, laid in enumerate(LAID):
        with heard() as lines:
            laid(matrix)
        yield f"layout {at}: {told(lines)}"
    yield f"dimensions {_pairs._DIMENSIONS}; {_pairs._VALUES} values kept, {_pairs._VALUES_OF_ROWS} of rows"
    some = [one for one in OPERATORS if one.title in ("abs", "add", "div", "bitwise_left_shift")]
    some += [one for one in OPERATORS if one.title == "special.hermite_polynomial_h"]
    for dtype in DTYPES:
        name = str(dtype).removeprefix("torch.")
        for operator in some:
            given = list(inputs(operator, dtype, samples=False))
            shapes = [[list(one.shape) for one in call] for call in given]
            digests = [digest_of(map(portable, call)) for call in given]
            yield f"inputs of {operator.title} {name}: {shapes} {' '.join(digests)}"
        digests = [digest_of([portable(one)]) for one in matrices(dtype, *MATRICES)]
        yield f"matrices {name}: {list(MATRICES)} {' '.join(digests)}"


def times() -> Iterator[str]:
    """Each call with its inputs, and whether each is waited for."""
    for case in TIMED_CALLS:
        given = [_timed_calls.tensor(torch, text.removesuffix(" on cpu"), "meta") for text in case.call.inputs]
        with heard("meta") as lines:
            until_refused(lambda case=case, given=given: case.make(torch, given))
        yield f"{case.text} {case.mode}{', reads' if case.reads else ''}: {told(lines)}"


KINDS = {"times": times, "faults": faults, "waits": waits, "memory": memory, "streams": streams, "pairs": pairs}


@pytest.mark.skipif(RELEASE != (2, 13), reason="torch's own modules make other calls in other releases")
@pytest.mark.usefixtures("virtual_device")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_a_case_asks_what_it_always_asked(kind: str) -> None:
    """Every call, with its sizes, dtypes and numbers."""
    assert list(KINDS[kind]()) == (FOLDER / f"{kind}.txt").read_text(encoding="utf-8").splitlines()


def test_inputs_of_faults_are_small_whole_numbers() -> None:
    """From -3 to 3, in no order, so that sums of them are exact."""
    assert _fault_calls._made("cpu", 2, 5).tolist() == [[-3, -1, 3, 0, -3], [-1, 3, 0, -3, 1]]
    made = _fault_calls._made("cpu", 3000, dtype=torch.float16, grad=True)
    assert made.dtype == torch.float16
    assert made.requires_grad
    assert sorted(set(made.tolist())) == [-3, -2, -1, 0, 1, 2, 3]


def test_inputs_of_timed_calls() -> None:
    """Random floats of any dtype, and rows of a table of 30,000 in no order; on the device, unless the CPU is named."""
    rows = _timed_calls.tensor(torch, "int64[5]", "meta")
    assert (rows.device.type, rows.shape, rows.dtype) == ("meta", (5,), torch.int64)
    rows = _timed_calls.tensor(torch, "int64[8192] on cpu", "meta")
    assert rows[:5].tolist() == [0, 7919, 15838, 23757, 1676]
    assert len(set(rows.tolist())) == 8192
    assert 29_000 < int(rows.max()) < 30_000
    made = _timed_calls.tensor(torch, "bfloat16[3, 4] on cpu", "meta")
    assert (made.device.type, made.shape, made.dtype) == ("cpu", (3, 4), torch.bfloat16)
    assert made.unique().numel() > 6
    assert _timed_calls.tensor(torch, "float32[]", "cpu").shape == ()


def test_a_timed_call_waits_where_it_is_to_be_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each call of its mode, unless the call waits by itself."""
    waited: list[int] = []
    monkeypatch.setattr(torch.mps, "synchronize", lambda: waited.append(1))
    text = "aten::add.Tensor(float32[1], float32[1]) -> (float32[1])"
    for mode, reads, times in (("pipe", False, 0), ("pipe", True, 0), ("sync", False, 2), ("sync", True, 0)):
        call = _timed_calls.prepare(TimedCall(text, lambda torch, t: torch.add(*t), mode, reads), "cpu")  # type: ignore[arg-type]
        call(), call()
        assert len(waited) == times
        waited.clear()


def test_samples_of_the_database_join_the_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first twelve that have only tensors of the dtype, not empty, as many as the operator takes."""
    x, other = torch.ones(2), torch.ones(2, dtype=torch.int32)

    def sample(*given: Any, **kwargs: Any) -> SimpleNamespace:
        return SimpleNamespace(input=given[0], args=given[1:], kwargs=kwargs)

    left_out = [sample(x), sample(x, x, x), sample(x, x, alpha=2), sample(x, other), sample(x, 3), sample(x, x[:0])]
    fitting = [sample(torch.full((2,), float(at)), x) for at in range(20)]
    info = SimpleNamespace(dtypes={torch.float32}, sample_inputs=lambda *_: [*left_out, *fitting])
    monkeypatch.setattr(_values, "database", lambda: {("add", ""): info})
    add, alpha, trunc, mul = (
        next(one for one in OPERATORS if one.title == title) for title in ("add", "add, alpha = 3", "div, trunc", "mul")
    )

    def more(operator: Any, dtype: torch.dtype) -> list[tuple[torch.Tensor, ...]]:
        return list(inputs(operator, dtype))[3:]

    found = more(add, torch.float32)
    assert [float(one[0]) for one, _ in found] == [float(at) for at in range(12)]
    assert all(torch.equal(second, x) for _, second in found)
    for operator, dtype in ((add, torch.int32), (alpha, torch.float32), (trunc, torch.float32), (mul, torch.float32)):
        assert more(operator, dtype) == []


if __name__ == "__main__":
    if not is_virtual():
        enable(MAC, quiet=True)
    FOLDER.mkdir(exist_ok=True)
    for kind, lines in KINDS.items():
        (FOLDER / f"{kind}.txt").write_text("\n".join(lines()) + "\n", encoding="utf-8")
