"""The session of one measurement of a plan: shapes only, no limits, and an end after a few optimizer steps."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anymps._errors import UsageError
from anymps.commands._target import Target
from anymps.commands.isolated._isolation import divert_writes, end_with_parent
from anymps.commands.isolated._script_folder import hidden_package, tells_of_retries
from anymps.commands.isolated._step_limit import end_after
from anymps.plan import Scenario

if TYPE_CHECKING:
    from anymps.capture import Capture
    from anymps.plan.sandbox import Layer

_ROOMY_MAC = "M3 Ultra 512GB"  # whose largest buffer no script reaches: limits are for the replay


class PlanSession:
    """A `Session` of `run_target` that writes a recording and what the script's batches looked like."""

    def __init__(self, order: str, fallback: bool | None) -> None:
        self._order: dict[str, Any] = json.loads(order)
        self._fallback = fallback
        self._capture: Capture | None = None
        self._layer: Layer | None = None
        self._folder = ""

    def start(self, target: Target) -> None:
        """Switch the device on without values, change what the scenario changes, and begin to record."""
        end_with_parent()
        self._folder = sys.path[0]  # the script may change it
        self._divert()
        limits = self._order["limits"]
        for name in ("HIGH", "LOW"):
            # Without a Mac's limits there are none at all.
            os.environ[f"PYTORCH_MPS_{name}_WATERMARK_RATIO"] = "0.0"
            if limits is not None:
                del os.environ[f"PYTORCH_MPS_{name}_WATERMARK_RATIO"]
        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a plan downloads nothing: a model that needs it says so at once
        from anymps.device import enable

        try:
            enable(
                limits or _ROOMY_MAC,
                fallback=self._fallback,
                require="virtual",
                substrate="shape",
                start_method="system",
            )
        except Exception:
            if hidden := hidden_package(self._folder):
                raise UsageError(hidden) from None
            raise

        import anymps
        from anymps.plan.inside import Hollow, apply

        self._scenario = Scenario.from_json(self._order["scenario"])
        self._applied = apply(self._scenario)
        self._hollow = Hollow()
        self._hollow.__enter__()  # type: ignore[no-untyped-call]
        capture = anymps.record(self._order["recording"], script=target.name, argv=list(target.arguments))
        self._capture = capture.__enter__()
        end_after(self._order["steps"], self._keep_facts)

    def finish(self, ending: dict[str, object]) -> int:
        """Close the recording."""
        self.keep(ending)
        return 0

    def keep(self, ending: dict[str, object]) -> None:
        """Close the recording and write the facts."""
        if self._capture is None:
            return
        with suppress(Exception):
            self._hollow.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        self._capture.close(ending)
        failure = self._capture.failure
        self._capture = None
        self._write_facts("" if failure is None else str(failure))

    def _write_facts(self, unrecorded: str) -> None:
        facts = {
            "unrecorded": unrecorded,
            "batch": self._applied.batch,
            "sequence": self._applied.sequence,
            "last_batch": self._applied.last_batch,
            "embeds": self._hollow.embeds,
            "retries": tells_of_retries(self._folder),
            "dropped": self._dropped(),
            "without_effect": self._applied.without_effect(self._scenario, self._order["placed"]),
        }
        Path(self._order["facts"]).write_text(json.dumps(facts), encoding="utf-8")

    def _divert(self) -> None:
        """Send what the script writes to a private place, unless it may write. First of all: torch is not there yet."""
        if self._order["allow_writes"]:
            return
        self._layer = divert_writes(os.path.dirname(self._order["recording"]))

    def _dropped(self) -> dict[str, list[str]]:
        """The files that the script wrote and removed, which a plan drops."""
        if self._layer is None:
            return {"written": [], "removed": []}
        return {"written": list(self._layer.written), "removed": list(self._layer.removed)}

    def _keep_facts(self) -> None:
        """Write them once early, in case that the script has to be killed."""
        if not Path(self._order["facts"]).exists():
            with suppress(OSError):  # reported when the recording is closed
                self._write_facts("")
