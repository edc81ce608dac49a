"""What each case asks of torch: a Mac's file stays comparable only as long as a case of the same name asks the same.

`tests/data/asked` has the calls by kind and case. A case that shall ask something else gets another name. Then
`PYTHONPATH=tests:. python tests/verify/test_what_is_asked.py` writes the files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from anymps.device import enable, is_virtual
from anymps.verify.cases import FAULT_CALLS, WAITING, _fault_calls, _memory, _streams
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
    with (
        patch.multiple("torch.mps", **_stand_ins("mps", noted["torch.mps"], lines)),
        patch.multiple("torch.accelerator", **_stand_ins("accelerator", noted["torch.accelerator"], lines)),
    ):
        yield


def _stand_ins(module: str, names: dict[str, Any], lines: list[str]) -> dict[str, Noted]:
    found = getattr(torch, module)
    return {name: Noted(lines, f"{module}.{name}", value) for name, value in names.items() if hasattr(found, name)}


def faults() -> Iterator[str]:
    """The call of each known bug."""
    for identity, call in FAULT_CALLS.items():
        with heard() as lines, without_the_device(lines), patched_faults(lines):
            until_refused(lambda identity=identity, call=call: call("cpu" if identity in READS_VALUES else "meta"))
        yield f"{identity}: {told(lines)}"


@contextmanager
def patched_faults(lines: list[str]) -> Iterator[None]:
    """Inputs of whole numbers are one line."""
    made = _fault_calls._made

    def numbers(device: str, *shape: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
        count = len(lines)
        found = made(device, *shape, dtype=dtype, grad=grad)
        del lines[count:]
        lines.append(f"numbers {str(dtype).removeprefix('torch.')}{list(shape)}{' grad' if grad else ''}")
        return found

    with patch.object(_fault_calls, "_made", numbers):
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


KINDS = {"faults": faults, "waits": waits, "memory": memory, "streams": streams}


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


if __name__ == "__main__":
    if not is_virtual():
        enable(MAC, quiet=True)
    FOLDER.mkdir(exist_ok=True)
    for kind, lines in KINDS.items():
        (FOLDER / f"{kind}.txt").write_text("\n".join(lines()) + "\n", encoding="utf-8")
