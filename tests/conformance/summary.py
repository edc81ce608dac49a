"""What a run came to, for one torch release: counts and disagreements, as kept in `docs/fidelity/torch-*.json`.

A run on an NVIDIA card is kept in `cuda-*.json`.
"""

from __future__ import annotations

import datetime
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

Row = dict[str, Any]
Summary = dict[str, Any]
"""`torch`, `date`, `card` (the NVIDIA card that computed, none for the CPU), `limits`, `lost` (crashes and hangs),
`tables` (by name: rows of group, agreeing, scored, not scored) and `disagreements` (rows of kind, operator, dtypes, a
Mac, the virtual device, first difference)."""

KINDS: Final = {"forward": "forward results", "gradient": "gradients", "errors": "error inputs"}
PARTINGS: Final = {
    "refuses": "MPS refuses, the CPU computes",
    "fails": "MPS fails in some sample, the CPU computes",
    "runs": "MPS computes, the CPU refuses",
}


def agrees(row: Row) -> bool | None:
    """Whether the device did what a Mac does; None where the lists do not tell, or nothing could be compared."""
    if row["expected"] == "unknown" or row["actual"] == "unscored":
        return None
    if row["expected"] == "runs":
        return bool(row["actual"] == "runs")
    if row["expected"] == "fails":
        return row["actual"] in ("raises", "differs")
    return bool(row["actual"] == "raises")


def discriminates(row: Row) -> bool:
    """Whether a copy of the CPU gets the pair wrong."""
    return row["expected"] != "unknown" and row["on_cpu"] != (row["expected"] == "runs")


def share(rows: Iterable[Row]) -> tuple[int, int]:
    """How many pairs agree, of how many that are scored."""
    verdicts = Counter(agrees(row) for row in rows)
    return verdicts[True], verdicts[True] + verdicts[False]


def summarize(
    rows: list[Row], torch_version: str, limits: tuple[int, int], date: datetime.date, card: str = ""
) -> Summary:
    """The summary of all rows of a run; `limits` are the samples of a pair that a Mac runs, and of any other."""
    forward = [row for row in rows if row["kind"] == "forward"]
    special = [row for row in forward if discriminates(row)]
    return {
        "torch": torch_version,
        "date": date.isoformat(),
        **({"card": card} if card else {}),
        "limits": list(limits),
        "lost": sum(row["actual"] in ("crash", "hang") for row in rows),
        "tables": {
            "kind": [_count(name, (row for row in rows if row["kind"] == kind)) for kind, name in KINDS.items()],
            "pairs": [
                _count(name, (row for row in special if row["expected"] == what)) for what, name in PARTINGS.items()
            ],
            "dtype": _counts(forward, lambda row: str(row["dtype"])),
            "family": _counts(rows, lambda row: str(row["family"])),
        },
        "disagreements": _disagreements(rows),
    }


def save(summary: Summary, folder: Path) -> Path:
    """Writes the summary into the folder, in place of an older one of the same release; where it lies."""
    release = ".".join(summary["torch"].split(".")[:2])
    path = folder / f"{'cuda' if summary.get('card') else 'torch'}-{release}.json"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(summary, indent=1) + "\n")
    return path


def load(folder: Path, kind: str = "torch") -> list[Summary]:
    """All summaries of the folder, the oldest release first; of `kind` cuda those of NVIDIA cards."""
    found = [json.loads(path.read_text()) for path in folder.glob(f"{kind}-*.json")]
    return sorted(found, key=lambda summary: [int(part) for part in summary["torch"].split(".")[:2]])


def _count(name: str, rows: Iterable[Row]) -> list[Any]:
    members = list(rows)
    agreeing, scored = share(members)
    return [name, agreeing, scored, len(members) - scored]


def _counts(rows: Iterable[Row], key: Callable[[Row], str]) -> list[list[Any]]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return [_count(name, members) for name, members in sorted(groups.items())]


def _disagreements(rows: list[Row]) -> list[list[Any]]:
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for row in rows:
        if agrees(row) is False:
            detail = " ".join(str(row["detail"]).replace("|", "/").split())[:110]
            groups[KINDS[row["kind"]], row["operator"], row["expected"], row["actual"], detail].append(row["dtype"])
    return [
        [kind, operator, dtypes, expected, actual, detail]
        for (kind, operator, expected, actual, detail), dtypes in sorted(groups.items())
    ]
