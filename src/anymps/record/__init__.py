"""What happened in a run: the recording, how it is written, and how it is read. Needs no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anymps._lazy import lazy_face
from anymps._vocabulary import Direction, Fate, Flag, Phase, RefusalKind, Role, RoundKind, Wait

if TYPE_CHECKING:
    from anymps.record._builder import RecordingBuilder
    from anymps.record._facts import (
        Call,
        Form,
        Known,
        Line,
        MemorySample,
        Noted,
        Occurrence,
        OperatorUse,
        Optimizer,
        Refusal,
        Signature,
        Site,
        UnsafeCopy,
        WaitQueue,
        known_as,
        known_from,
    )
    from anymps.record._join import check_alike, join, join_into
    from anymps.record._memory import Allocation, Category, Holding, MemoryStory, Moment, Sample, StepMemory
    from anymps.record._meta import NOWHERE, EndingFacts, Meta, Part, SourcePlace, Suite
    from anymps.record._place import check_recordable, move_recording, remove_recording
    from anymps.record._processes import LinesByProcess
    from anymps.record._recording import Recording
    from anymps.record._step_facts import (
        PHASE_NUMBERS,
        PhaseShare,
        RareWork,
        Step,
        StepQueue,
        StepSum,
        StepTable,
    )
    from anymps.record._writer import RecordingWriter

__all__ = [
    "NOWHERE",
    "PHASE_NUMBERS",
    "Allocation",
    "Call",
    "Category",
    "Direction",
    "EndingFacts",
    "Fate",
    "Flag",
    "Form",
    "Holding",
    "Known",
    "Line",
    "LinesByProcess",
    "MemorySample",
    "MemoryStory",
    "Meta",
    "Moment",
    "Noted",
    "Occurrence",
    "OperatorUse",
    "Optimizer",
    "Part",
    "Phase",
    "PhaseShare",
    "RareWork",
    "Recording",
    "RecordingBuilder",
    "RecordingWriter",
    "Refusal",
    "RefusalKind",
    "Role",
    "RoundKind",
    "Sample",
    "Signature",
    "Site",
    "SourcePlace",
    "Step",
    "StepMemory",
    "StepQueue",
    "StepSum",
    "StepTable",
    "Suite",
    "UnsafeCopy",
    "Wait",
    "WaitQueue",
    "check_alike",
    "check_recordable",
    "join",
    "join_into",
    "known_as",
    "known_from",
    "move_recording",
    "remove_recording",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_face(__name__)
