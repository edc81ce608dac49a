"""The source without the native core, as on a Mac's own device: what a dispatch mode, stand-ins and counters see.

`DispatchCore` has the functions of the native module that a capture uses, so that all else is the same for both.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

from anymps.capture.dispatch._calls import Kind, Plan, Plans, Tensors
from anymps.capture.dispatch._copies import PendingCopies, returns_early
from anymps.capture.dispatch._hazards import KnownFaults, is_dire, mark_of
from anymps.capture.dispatch._ledger import PythonLedger
from anymps.capture.dispatch._mode import RecordingMode, keep_compiler_out
from anymps.capture.dispatch._overwritten import Overwritten
from anymps.capture.dispatch._reach import Reach
from anymps.capture.dispatch._refusals import DELAYED_ERROR, culprit_of, kind_of, refused_operator
from anymps.capture.dispatch._repeats import Repeats
from anymps.capture.dispatch._roundtrip import RoundTrips
from anymps.capture.dispatch._sites import Sites
from anymps.capture.dispatch._tape import PythonTape, graph_task
from anymps.capture.dispatch._waits import Waits
from anymps.device import internal_folders, known_hazards
from anymps.record import Direction, Fate, Flag, RefusalKind, Wait
from anymps.rules.faults import Check, Hazard

_COPY = torch.ops.aten.copy_.default


class DispatchCore:
    """One recording's tape, ledger and eyes, under the names that the native module has."""

    def __init__(self) -> None:
        self.sites = Sites([*internal_folders(), warnings.__file__])
        self.tape = PythonTape(self.sites)
        self.ledger = PythonLedger(self.tape)
        self.copies = PendingCopies(self.tape)
        self.trips = RoundTrips(self.tape)
        self._overwritten = Overwritten(self.tape)
        self._faults = KnownFaults(known_hazards())
        self.plans = Plans(self._faults)
        self._waits = Waits(self.tape, self.copies, self._waited, self._fell_back, self._surfaced, self._event_fault)
        self._checked: list[
            tuple[str, int]
        ] = []  # calls whose indices the device looks at, and lines, since the last wait
        self._blamed = 0
        self._reach = Reach(lambda: RecordingMode(self), keep_compiler_out)
        self._mode: RecordingMode | None = None
        self._note_refusal: Callable[..., None] | None = None
        self._note_surfaced: Callable[[int], None] | None = None
        self._note_copied: Callable[[torch.Tensor, int, bool], None] | None = None
        self._repeats = Repeats()
        self._copying_lines: set[int] = set()
        self._number_of: Callable[[Any], int] | None = None
        self._modules: dict[int, int] = {}
        self._module_call: Callable[..., Any] | None = None
        self._fallen: set[str] = set()
        self._dire: set[tuple[str, int]] = set()
        self.save: Callable[[], None] | None = None
        """What takes the tape to the file at once: a call that may end the process is about to run."""
        # The rest of the native module's face.
        self.clock_ns = self.tape.clock_ns
        self.mark = self.tape.mark
        self.note_pair = self.tape.note_pair
        self.set_phase = self.tape.set_phase
        self.end_step = self.tape.end_step
        self.note_round = self.tape.note_round
        self.site = self.sites.number
        self.is_internal = self.sites.is_internal
        self.ledger_start = self.ledger.start
        self.ledger_drain = self.ledger.drain
        self.tape_drain = self.tape.drain

    def set_callbacks(self, refusal: Any, surfaced: Any, copied: Any, module: Any) -> None:
        """What to call for refusals, errors that come out later, lines that copy to mps, and new modules."""
        self._note_refusal, self._note_surfaced = refusal, surfaced
        self._note_copied, self._number_of = copied, module

    def current_site(self) -> int:
        """The line that runs, or the one that a late error is put down to."""
        return self._blamed or self.tape.place()

    def tape_start(self, limit: int) -> None:
        """Start to watch, on this thread and those that it starts from now on."""
        self.tape.start(limit)
        self._waits.install()
        self._reach.install()
        self._mode = RecordingMode(self)
        self._mode.__enter__()  # type: ignore[no-untyped-call]

    def tape_stop(self) -> None:
        """Stop. A mode that is not the innermost stays in place and does nothing any more."""
        self.copies.end()
        self.trips.end()
        self.tape.on = False
        self._waits.remove()
        self._reach.remove()
        if self._mode is not None and _get_current_dispatch_mode() is self._mode:
            self._mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        self._mode = None

    def tape_sparse(self, on: bool) -> None:
        """Leave plain calls out from now on, or take them in again."""
        self.tape.sparse = on

    def tape_pause(self, paused: bool) -> None:
        """Pause, or go on."""
        self.tape.on = not paused

    def tape_totals(self) -> Iterator[tuple[int, ...]]:
        """Sums over everything drained so far."""
        return self.tape.totals()

    def ledger_state(self) -> tuple[int, int]:
        """Births and deaths so far, and rows that were only counted."""
        return self.ledger.events, self.ledger.dropped

    def assign_storage(self, storage: torch.UntypedStorage, role: int, module: int) -> None:
        """Say what a storage is."""
        self.ledger.assign(storage, role, module)

    def reset_peak_memory(self) -> None:
        """Set the peak to what is allocated now."""
        self.ledger.peak = torch._C._mps_currentAllocatedMemory()

    def memory_statistics(self) -> dict[str, tuple[int, int]]:
        """What is allocated now, and the peak of the samples since it was reset, in bytes."""
        return {"allocated": (torch._C._mps_currentAllocatedMemory(), self.ledger.peak)}

    @staticmethod
    def watch_calls(original: Callable[..., Any], around: Callable[..., Any]) -> Callable[..., Any]:
        """A function in the place of `original`: `around` gets the arguments first, and gives None or what to call
        afterwards, with the exception that came or None."""

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            finish = around(*args, **kwargs)
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                if finish is not None:
                    finish(error)
                raise
            if finish is not None:
                finish(None)
            return result

        return watched

    def watch_modules(self, original: Callable[..., Any]) -> None:
        """Put a function that notes which module runs in the place of `torch.nn.Module.__call__`, the `original`."""
        tape, modules = self.tape, self._modules

        def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True  # pytest leaves the frame out
            number = modules.get(id(module))
            if number is None:
                number = modules[id(module)] = self._number_of(module) if self._number_of is not None else 0
            tape.enter_module(number)
            try:
                return original(module, *args, **kwargs)
            finally:
                tape.leave_module()

        self._module_call = original
        setattr(torch.nn.Module, "__call__", __call__)  # noqa: B010 - mypy takes an assignment for a mistake

    def unwatch_modules(self) -> None:
        """Put the former function back."""
        if self._module_call is not None:
            setattr(torch.nn.Module, "__call__", self._module_call)  # noqa: B010
            self._module_call = None

    def forget_module(self, address: int) -> None:
        """Forget a module that is gone."""
        self._modules.pop(address, None)

    def forget_modules(self) -> None:
        """Forget all modules."""
        self._modules.clear()

    # --- calls

    def copies_touched(self, plan: Plan, args: Any, kwargs: Any, tensors: Tensors) -> None:
        """Look at a call while copies are under way."""
        if plan.kind is Kind.COPY and len(tensors) == 2:
            (_, destination), (_, source) = tensors
            if destination.is_mps != source.is_mps and destination.dtype == source.dtype:
                if source.is_mps:
                    self.copies.overwritten(destination)
                return  # queues behind the others
        if plan.kind not in (Kind.VIEW, Kind.LIFT):
            self.copies.touched(plan.name, tensors, plan.writes)

    def call(self, plan: Plan, func: Any, args: Any, kwargs: Any, tensors: Tensors) -> Any:
        """Run a call on the device and write what became of it."""
        if plan.kind is Kind.COPY:
            return self._copy(plan, func, args, kwargs)
        if plan.hazards is not None and plan.hazards.may_meet(tensors):
            self.meet(plan, args, kwargs)
        if plan.kind is Kind.KERNEL and plan.fate(tensors) is not Fate.NATIVE:
            self._fallen.add(plan.name)  # torch may warn before the call is over
        start = self.tape.clock_ns()
        try:
            result = plan.callable_with(func, args)(*args, **kwargs)
        except Exception as error:
            self._failed(plan, error, args, kwargs, tensors, start)
            raise
        if plan.kind is Kind.ALLOCATION:
            self.ledger.see([result], resized=plan.resizes)
            if self.tape.here.unattributed:
                name = self.tape.operator(plan.name)
                self.ledger.name(self.tape.write(name, Fate.NATIVE, [], [result], start, kept=False))
            return result
        if plan.kind is Kind.READ:
            self._read(plan, tensors, start)
            return result
        if plan.kind is Kind.LIFT:
            self._lifted(result, start)
            return result
        outputs = plan.fresh(result)
        if outputs:
            self.ledger.see(outputs)
            outputs = [tensor for tensor in outputs if tensor.layout is torch.strided]
        if plan.resizes:
            self.ledger.see([it for place, it in tensors if place in plan.writes and it.is_mps], resized=True)
        self._kernel(plan, tensors, outputs, start, plan.wait_of(tensors, args, kwargs))
        return result

    def meet(self, plan: Plan, args: Any, kwargs: Any) -> str:
        """Note each known fault that a call would meet; give the mark of one that a later read of its source shows."""
        later = ""
        if plan.hazards is not None:
            for hazard, operator in plan.hazards.met_by(args, kwargs):
                if hazard.check is Check.NARROWING_COPY:
                    later = mark_of(hazard, operator)
                    continue
                self._note_fault(hazard, operator)
                if hazard.text:
                    break  # refused for this one
        return later

    def _event_fault(self, check: Check) -> None:
        hazard = self._faults.of_event(check)
        if hazard is not None and self.tape.on:
            self._note_fault(hazard, "torch.mps.Event.elapsed_time")

    def _note_fault(self, hazard: Hazard, operator: str) -> None:
        site = self.tape.hazard(mark_of(hazard, operator))
        if is_dire(hazard) and self.save is not None and (hazard.id, site) not in self._dire:
            self._dire.add((hazard.id, site))
            self.save()

    def _kernel(self, plan: Plan, tensors: Tensors, outputs: list[torch.Tensor], start: int, inside: Wait) -> None:
        inputs = [tensor for _, tensor in tensors]
        fate = plan.fate(tensors)
        if fate is Fate.NATIVE:
            wait, moved = inside, 0
        else:
            wait = Wait.FALLBACK
            moved = sum(tensor.nbytes for tensor in (*inputs, *outputs) if tensor.is_mps and not tensor.is_sparse)
        site = self._write(plan, fate, inputs, outputs, start, wait=wait, moved=moved)
        if wait is not Wait.NONE:
            self._waited()
        if plan.checks_indices and fate is Fate.NATIVE:
            self._checked.append((plan.name, site))

    def _read(self, plan: Plan, tensors: Tensors, start: int) -> None:
        source = tensors[0][1]
        self._write(
            plan, Fate.NATIVE, [source], [], start, wait=Wait.ITEM, direction=Direction.MPS_TO_CPU,
            moved=source.element_size(),
        )  # fmt: skip
        self._waited()

    def _copy(self, plan: Plan, func: Any, args: Any, kwargs: Any) -> Any:
        destination, source = (args[0], args[1]) if plan.base == "copy_" else (args[1], args[0])
        if destination is source or source.numel() == 0 or destination.is_meta or source.is_meta:
            return func(*args, **kwargs)
        non_blocking = bool(kwargs.get("non_blocking", args[2] if len(args) > 2 else False))
        wait, early, direction = Wait.NONE, False, Direction.MPS_TO_MPS
        if not (destination.is_mps and source.is_mps):
            direction = Direction.CPU_TO_MPS if destination.is_mps else Direction.MPS_TO_CPU
            early = non_blocking and returns_early(destination, source)
            if not early:
                wait = Wait.COPY_TO_MPS if destination.is_mps else Wait.COPY_TO_CPU
        spoilt = ""
        if direction is Direction.MPS_TO_CPU:
            spoilt = self.meet(self.plans.of(_COPY), (destination, source), {})
        start = self.tape.clock_ns()
        late: Exception | None = None
        result = destination
        try:
            result = func(*args, **kwargs)
        except DELAYED_ERROR as error:  # of another call: the copy itself has been made
            late = error
        except Exception as error:
            self._failed(plan, error, args, kwargs, [(1, source), (0, destination)], start)
            raise
        self._write(
            plan, Fate.COPY, [source, destination], [], start, wait=wait, direction=direction,
            flags=Flag.NON_BLOCKING if early else 0, moved=destination.nbytes,
        )  # fmt: skip
        if spoilt:
            self._overwritten.remember(source, spoilt, self.current_site())
        if late is not None:
            self._surfaced(late)
            raise late
        if direction is Direction.CPU_TO_MPS:
            self.trips.returned(source)
            self._copied(source)
        elif direction is Direction.MPS_TO_CPU:
            self.trips.left(destination)
        if wait is not Wait.NONE:
            self._waited()
        elif early:
            self.copies.started(destination, source)
        return result

    def _lifted(self, made: torch.Tensor, now: int) -> None:
        """A tensor was made of a program's numbers: filled on the CPU and copied, for how long is not known."""
        if made.layout is not torch.strided or made.numel() == 0 or self.ledger.knows(made):
            return  # one that was copied in sight
        filled = torch.empty((), dtype=made.dtype).expand(made.shape)  # as it was
        self.ledger.see([made])
        self._write(
            self.plans.of(_COPY), Fate.COPY, [filled, made], [], now, wait=Wait.COPY_TO_MPS,
            direction=Direction.CPU_TO_MPS, moved=made.nbytes,
        )  # fmt: skip
        self._copied(filled)
        self._waited()

    def _copied(self, source: torch.Tensor) -> None:
        """Tell, once a line, what is copied to mps there, and once what comes by unchanged in every step."""
        if self._note_copied is None or graph_task() != -1:
            return
        site = self.current_site()
        again = site != 0 and self._repeats.is_third(source, site, self.tape.step)
        if site and (again or site not in self._copying_lines):
            self._copying_lines.add(site)
            self._note_copied(source, site, again)

    def _write(
        self,
        plan: Plan,
        fate: Fate,
        inputs: Sequence[torch.Tensor],
        outputs: Sequence[torch.Tensor],
        start: int,
        **rest: Any,
    ) -> int:
        number = plan.number
        if number is None:
            number = plan.number = self.tape.operator(plan.name)
        entry = self.tape.write(number, fate, inputs, outputs, start, **rest)
        self.ledger.attribute(entry)
        if self._overwritten:
            self._overwritten.look(plan.name, inputs)
        return entry[6]

    def _failed(self, plan: Plan, error: Exception, args: Any, kwargs: Any, tensors: Tensors, start: int) -> None:
        """Write a call that raised: a refusal if mps alone would have raised it."""
        if isinstance(error, DELAYED_ERROR):  # the call itself was done
            if plan.kind is Kind.READ:
                self._read(plan, tensors, start)
            elif plan.kind is Kind.KERNEL:
                self._kernel(plan, tensors, [], start, plan.wait_of(tensors, args, kwargs))
            self._surfaced(error)
            return
        kind = kind_of(error, (*args, *kwargs.values()))
        if kind is None:
            if plan.kind is Kind.ALLOCATION:  # has no entry of its own, whether it ends well or not
                return
            fate = plan.fate(tensors)
            wait = plan.wait_of(tensors, args, kwargs) if fate is Fate.NATIVE else Wait.FALLBACK
            self._write(plan, fate, [], [], start, wait=wait, flags=Flag.RAISED)
            return
        operator = refused_operator(kind, plan.name, str(error))
        self._refused(kind, operator, error, culprit_of(kind, [tensor for _, tensor in tensors]))

    def _refused(self, kind: RefusalKind, operator: str, error: Exception, culprit: torch.Tensor | None) -> int:
        fate = Fate.MISSING if kind is RefusalKind.MISSING else Fate.REFUSED
        number = self.tape.refuse(operator, fate, self._blamed)
        if self._note_refusal is not None:
            self._note_refusal(number, kind.value, operator, type(error).__name__, str(error), culprit)
        return number

    def _surfaced(self, error: Exception) -> None:
        """An error that a kernel has left comes out at a wait.

        Whose it is, the device does not say: it is put down to another line than this one only if a single line has
        given the device indices to look at since the last wait.
        """
        if not isinstance(error, DELAYED_ERROR) or not self.tape.on:
            return
        number = self._put_down(error)
        if self._note_surfaced is not None:
            self._note_surfaced(number)

    def _put_down(self, error: Exception) -> int:
        """Write the refusal of an error that has come out, and give its number."""
        checked, self._checked = self._checked, []
        lines = {site for _, site in checked}
        if len(lines) == 1:
            self._blamed = lines.pop()
        operator = checked[0][0] if self._blamed else "anymps::wait"
        try:
            return self._refused(RefusalKind.INDEX, operator, error, None)
        finally:
            self._blamed = 0

    def take_late_error(self) -> tuple[int, str] | None:
        """Wait for the device. The number of the refusal and the text of the error that comes out, None for none."""
        was_on, self.tape.on = self.tape.on, False  # the program did not ask for this wait
        try:
            torch._C._mps_deviceSynchronize()
        except DELAYED_ERROR as error:
            self.tape.on = was_on
            return self._put_down(error), str(error)
        finally:
            self.tape.on = was_on
        self._waited()
        return None

    def _waited(self, up_to: int | None = None) -> None:
        """The host has waited, for everything or for the first copies."""
        self.copies.waited(up_to)
        if up_to is None:
            self._checked.clear()

    def _fell_back(self, operator: str) -> None:
        """Torch warns that an operator ran on the CPU: one that no entry has, since a kernel of mps has called it."""
        if operator not in self._fallen and self.tape.on:
            self._fallen.add(operator)
            now = self.tape.clock_ns()
            fate = self.plans.fate_of(operator)
            self.tape.write(self.tape.operator(operator), fate, [], [], now, wait=Wait.FALLBACK)
