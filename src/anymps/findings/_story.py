"""What a report tells of a run, worked out once: the typed value between a recording and the words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from anymps.findings._gpu_profile import GpuProfile, ProfiledOperation, gpu_profile
from anymps.findings._judgement import Judgement, how_it_ended, judge, unused
from anymps.findings._memory_limits import MemoryLimits, memory_limits
from anymps.findings._model import Finding
from anymps.findings._prices import step_on_mac
from anymps.findings._registry import notes
from anymps.findings._wait_places import WaitPlace, needless_places, wait_places, waits_at
from anymps.findings.rules import growth_per_step
from anymps.forecast import Forecast, loop_forecasts, try_forecast, why_no_forecast
from anymps.record import (
    Line,
    LinesByProcess,
    MemorySample,
    MemoryStory,
    Meta,
    Noted,
    Occurrence,
    OperatorUse,
    Part,
    Recording,
    Refusal,
    Step,
    StepQueue,
    StepSum,
    StepTable,
)


@dataclass(frozen=True, eq=False)
class Story:
    """All that reports say of a run, apart from its findings.

    `facts` are those of `run` as the recording holds them, for programs. `unused`: nothing reached mps. `waits`
    are the places where the host waited, and `wait_calls` the single calls. `forecast` is the typical step on the
    recording's Mac, or `no_forecast` why there is none; `on_mac` is the same for a training whose time is told.
    `loop_forecasts` has a step of each of several loops. `gpu_profile` is what torch's own profiler measured on a Mac.
    `packages` are first calls of AOTInductor's packages.
    """

    run: Meta
    facts: Mapping[str, object]
    complete: bool
    unused: bool
    end: Judgement
    call_count: int
    dropped: int
    sizeless: tuple[str, ...]
    steps: tuple[Step, ...]
    trains: bool
    step_table: StepTable
    step_sums: tuple[StepSum, ...]
    queues: tuple[StepQueue, ...]
    operators: tuple[OperatorUse, ...]
    lines: tuple[Line, ...]
    processes: LinesByProcess
    waits: tuple[WaitPlace, ...]
    wait_calls: tuple[Occurrence, ...]
    fallbacks: tuple[Occurrence, ...]
    refusals: tuple[Refusal, ...]
    device_times: tuple[Occurrence, ...]
    forecast: Forecast | None
    no_forecast: str
    on_mac: Forecast | None
    loop_forecasts: tuple[Forecast | None, ...]
    memory: MemoryStory
    memory_samples: tuple[MemorySample, ...]
    memory_limits: MemoryLimits | None
    growth_per_step: float
    notes: tuple[str, ...]
    packages: tuple[Noted, ...]
    gpu_profile: GpuProfile | None = None

    @classmethod
    def of(cls, recording: Recording, on_gpu: tuple[ProfiledOperation, ...] = ()) -> Story:
        """Work it out, with the operations that torch's own profiler measured if there are any.

        Raises RecordingError if the recording is damaged.
        """
        step = recording.typical_step()
        return cls(
            run=recording.run,
            facts=recording.meta,
            complete=recording.complete,
            unused=unused(recording),
            end=how_it_ended(recording),
            call_count=recording.entry_count,
            dropped=recording.dropped,
            sizeless=recording.sizeless,
            steps=recording.steps(),
            trains=recording.trains,
            step_table=recording.step_table(),
            step_sums=recording.step_sums(),
            queues=recording.step_queues(step) if step is not None else (),
            operators=recording.operators(),
            lines=recording.lines(),
            processes=recording.lines_by_process,
            waits=wait_places(recording),
            wait_calls=recording.waits(),
            fallbacks=recording.fallbacks(),
            refusals=recording.refusals(),
            device_times=tuple(noted.occurrence for noted in recording.noted("device_time")),
            forecast=try_forecast(recording),
            no_forecast=why_no_forecast(recording),
            on_mac=step_on_mac(recording),
            loop_forecasts=loop_forecasts(recording),
            memory=recording.memory_story,
            memory_samples=recording.memory(),
            memory_limits=memory_limits(recording),
            growth_per_step=growth_per_step(recording),
            notes=tuple(notes(recording)),
            packages=recording.noted("package"),
            gpu_profile=gpu_profile(recording, on_gpu) if on_gpu else None,
        )

    @property
    def parts(self) -> tuple[Part, ...]:
        """The processes of a joined recording; none of a single process."""
        return self.run.parts

    @property
    def timed(self) -> Forecast | None:
        """The forecast, if its time is told."""
        return self.forecast if self.forecast is not None and not self.forecast.no_time else None

    @property
    def complete_steps(self) -> int:
        """The number of steps that reached their end."""
        return sum(step.complete for step in self.steps)

    def judge(self, findings: Sequence[Finding]) -> Judgement:
        """What became of the run, with the findings that are shown with it."""
        return judge(self.end, findings)

    def needless(self, findings: Iterable[Finding]) -> list[WaitPlace]:
        """The waits that the program could do without."""
        return needless_places(self.waits, findings)

    def in_typical(self, places: Iterable[WaitPlace]) -> int:
        """How many waits of the typical step are at these places."""
        return waits_at(places, self.queues)
