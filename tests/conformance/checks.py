"""What the device does with one (operator, dtype): forward results, gradients and error inputs, against the CPU."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import torch
from torch.utils._pytree import tree_leaves, tree_map

from anymps.verify.cases import Draws

RAN, RAISED, DIFFERED, UNSCORED = "runs", "raises", "differs", "unscored"
"""What happened: every sample ran and agreed, one raised, one gave another result, or nothing could be compared."""

# TestConsistency._compute_tolerances of test/test_mps.py, as far as results of CPU kernels can need it.
_TOLERANCES: Final = {torch.float16: (1e-2, 1e-2), torch.bfloat16: (2e-2, 2e-2)}
_LOOSE: Final = {"rtol": 1e-4, "atol": 1e-4}


@dataclass(frozen=True)
class Outcome:
    """What the device did, in how many samples, and the first text or difference."""

    what: str
    samples: int
    detail: str = ""


class _Refused(Exception):
    """The device raised."""


class _Random(Exception):
    """Results of random numbers, of which the two devices have streams of their own."""


Tell = Callable[[], object]
"""Called after every sample, so that a pair of large samples is told from one that hangs."""


def forward(op: Any, dtype: torch.dtype, limit: int, tell: Tell = lambda: None) -> Outcome:
    """Runs the samples of an operator on mps and on the CPU; stops at the first that raises on mps or differs."""

    def check(sample: Any) -> None:
        call, reference = _calls(op, sample)
        result = _on_device(call)

        def compare(host: _Reference) -> bool:
            expected = host()
            if expected is not None:
                _compare(result, expected, lambda: reference())
            return expected is not None

        _either(compare, reference, dtype)

    wants_gradients = (dtype.is_floating_point or dtype.is_complex) and op.supports_autograd
    return _over(lambda: op.sample_inputs("mps:0", dtype, requires_grad=wants_gradients), check, limit, tell)


def gradient(op: Any, dtype: torch.dtype, limit: int, tell: Tell = lambda: None) -> Outcome:
    """As `forward`, and compares the gradients of all differentiable arguments for random output gradients."""

    def check(sample: Any) -> bool:
        if op.name == "unique" and sample.kwargs.get("sorted") is False:
            return False
        call, reference = _calls(op, sample)
        result = _on_device(call)
        expected = reference()
        if expected is None:
            return False
        outputs, wanted = _differentiable(result), _differentiable(expected)
        if len(outputs) != len(wanted):
            raise AssertionError(f"{len(outputs)} differentiable results, on the CPU {len(wanted)}")
        if not outputs:
            return False
        weights = [torch.rand_like(w, dtype=torch.float32 if not w.is_complex() else None).to(w.dtype) for w in wanted]
        arguments = _differentiable(call.values)
        found = _on_device(
            lambda: torch.autograd.grad(outputs, arguments, [w.to("mps") for w in weights], allow_unused=True)
        )

        def compare(host: _Reference) -> bool:
            results = _differentiable(host())
            try:
                cast = [w.to(result.dtype) for w, result in zip(weights, results, strict=True)]
                right = torch.autograd.grad(results, _differentiable(host.values), cast, allow_unused=True)
            except Exception:  # the CPU has no such gradient: nothing to compare with, but mps must have one
                return True
            _compare(found, right, lambda: reference(), strict=True)
            return True

        _either(compare, reference, dtype)
        return True

    return _over(lambda: op.sample_inputs("mps:0", dtype, requires_grad=True), check, limit, tell)


def errors(op: Any, limit: int, returned: bool = False) -> Outcome:
    """Gives the operator its wrong inputs; each must raise what the database describes.

    With `returned` an operator may also return NotImplemented where any exception will do.
    `RAN` if all do, `DIFFERED` if one does not; an operator without a kernel is not scored (as in torch's own test).
    """
    samples = 0
    wrongs = iter(op.error_inputs("mps:0"))
    while samples < limit:
        try:
            wrong = next(wrongs)
        except StopIteration:
            break
        except Exception as error:  # the wrong input itself cannot be made on mps, on a Mac neither
            return Outcome(DIFFERED, samples, "while making the wrong input: " + _text(error))
        call, _ = _calls(op, wrong.sample_input)
        samples += 1
        try:
            result = call()
        except NotImplementedError as error:
            if not issubclass(NotImplementedError, wrong.error_type) or not re.search(
                str(wrong.error_regex), str(error)
            ):
                return Outcome(UNSCORED, samples, _text(error))
        except Exception as error:
            if not isinstance(error, wrong.error_type) or not re.search(str(wrong.error_regex), str(error)):
                expected = f"{_names(wrong.error_type)} /{wrong.error_regex}/"
                return Outcome(DIFFERED, samples, f"expected {expected}, got {_text(error)}")
        else:
            if returned and result is NotImplemented and wrong.error_type is Exception:
                continue
            return Outcome(
                DIFFERED, samples, f"expected {_names(wrong.error_type)} /{wrong.error_regex}/, nothing raised"
            )
    return Outcome(RAN, samples)


def _either(compare: Callable[[_Reference], bool], reference: _Reference, dtype: torch.dtype) -> None:
    """Compares with the CPU; half precision, if the CPU lacks it or differs, with float32: MPS kernels round once."""
    wide = dtype in (torch.float16, torch.bfloat16)
    try:
        if compare(reference) or not wide:
            return
    except AssertionError:
        if not wide:
            raise
    compare(reference.widened(dtype))


def _over(samples: Callable[[], Iterable[Any]], check: Callable[[Any], object], limit: int, tell: Tell) -> Outcome:
    done = scored = 0
    try:
        with _quiet():
            for sample in islice(_on_device(samples), limit):
                done += 1
                scored += check(sample) is not False
                tell()
    except _Refused as refused:
        return Outcome(RAISED, done, str(refused))
    except _Random:
        return Outcome(UNSCORED, done, "gradients of random numbers")
    except AssertionError as difference:
        return Outcome(DIFFERED, done, " ".join(str(difference).split())[:300])
    except Exception as error:  # making the sample needs an operator or a dtype that mps refuses
        return Outcome(RAISED, done, "while making the sample: " + _text(error))
    return Outcome(RAN if scored else UNSCORED, done, "" if scored else "no sample to compare")


def _on_device(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        raise _Refused(_text(error)) from error


class _Call:
    """An operator with its arguments on one device."""

    def __init__(self, op: Any, values: tuple[Any, dict[str, Any]]) -> None:
        self._op, self.values = op, values

    def __call__(self) -> Any:
        args, kwargs = self.values
        return self._op(*args, **kwargs)


class _Reference:
    """The same call on the CPU."""

    def __init__(self, op: Any, values: tuple[Any, dict[str, Any]]) -> None:
        self._op, self.values = op, values

    def widened(self, dtype: torch.dtype) -> _Reference:
        """The call with this dtype as float32."""
        return _Reference(self._op, tree_map(_widened(dtype), self.values))

    def __call__(self) -> Any:
        """The result, or None if the CPU refuses the arguments."""
        args, kwargs = self.values
        try:
            return self._op(*args, **kwargs)
        except Exception:
            return None


def _calls(op: Any, sample: Any) -> tuple[_Call, _Reference]:
    values = ((sample.input, *sample.args), dict(sample.kwargs))
    host = tree_map(_to_cpu, values)
    if op.name == "tensor_split" and len(values[0]) > 1:  # takes its indices from the CPU only, on every device
        values = ((values[0][0], host[0][1], *values[0][2:]), values[1])
    return _Call(op, values), _Reference(op, host)


def _to_cpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value if value.is_meta else value.detach().to("cpu").requires_grad_(value.requires_grad)
    if isinstance(value, torch.device) and value.type == "mps":
        return torch.device("cpu")
    return "cpu" if isinstance(value, str) and value in ("mps", "mps:0") else value


def _widened(dtype: torch.dtype) -> Callable[[Any], Any]:
    """Half precision as float32."""

    def widen(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dtype == dtype:
            return value.detach().float().requires_grad_(value.requires_grad)
        return torch.float32 if value is dtype else value

    return widen


def _compare(found: Any, wanted: Any, again: Callable[[], Any], *, strict: bool = False) -> None:
    results, references = tree_leaves(found), tree_leaves(wanted)
    if len(results) != len(references):
        raise AssertionError(f"{len(results)} results, on the CPU {len(references)}")
    try:
        for result, reference in zip(results, references, strict=True):
            _compare_one(result, reference)
    except AssertionError:
        with Draws() as draws:
            again()
        if not draws.seen:
            raise
        if strict:
            raise _Random from None
        # The two devices have random streams of their own: only what the result looks like can be compared.
        for result, reference in zip(results, references, strict=True):
            if isinstance(reference, torch.Tensor) and (
                result.shape != reference.shape or result.dtype != reference.dtype
            ):
                raise


def _compare_one(result: Any, reference: Any) -> None:
    if not isinstance(reference, torch.Tensor):
        if isinstance(reference, float | complex):
            torch.testing.assert_close(result, reference, equal_nan=True, **_LOOSE)
        elif result != reference:
            raise AssertionError(f"{result!r}, on the CPU {reference!r}")
        return
    assert isinstance(result, torch.Tensor), f"no tensor but {type(result).__name__}"
    host = result.detach().to("cpu")
    wanted = reference.detach()
    if host.dtype in _TOLERANCES and wanted.dtype == torch.float32:
        wanted = wanted.to(host.dtype)
    if host.dtype == torch.complex32 and wanted.dtype == torch.complex64:
        host, wanted = host.to(wanted.dtype), wanted.to(host.dtype).to(wanted.dtype)
        rtol, atol = _TOLERANCES[torch.float16]
        torch.testing.assert_close(host, wanted, rtol=rtol, atol=atol, equal_nan=True)
        return
    rtol, atol = _TOLERANCES.get(wanted.dtype, (1e-4, 1e-4))
    if host.is_sparse or wanted.layout != torch.strided:
        host, wanted = host.to_dense(), wanted.to_dense()
    torch.testing.assert_close(host, wanted, rtol=rtol, atol=atol, equal_nan=True)


def _differentiable(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]


def _text(error: BaseException) -> str:
    line = str(error).strip().split("\n")[0]
    return f"{type(error).__name__}: {line}"[:240]


def _names(error: Any) -> str:
    return "/".join(kind.__name__ for kind in error) if isinstance(error, tuple) else error.__name__


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
