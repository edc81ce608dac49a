"""`python -m tests.conformance [--write docs/fidelity] [OPERATOR ...]`: the whole run, or some operators of it.

With `--substrate cuda` an NVIDIA card computes, and its numbers are a section of the page.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from conformance import page, shards, summary, worker

MAC = "M3 Pro 18GB"


def main() -> int:
    """Runs, prints the shares, writes the page if asked to. The exit code is 1 if a worker crashed or hung."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=main.__doc__)
    parser.add_argument("operators", nargs="*", help="names as in the database: silu, linalg.svd; none: all")
    parser.add_argument("--write", type=Path, help="folder of the releases' numbers; the page is rendered beside it")
    parser.add_argument("--rows", type=Path, help="where to write all rows, as JSON")
    parser.add_argument("--shards", type=int, default=os.cpu_count() or 1, help="processes side by side")
    parser.add_argument(
        "--patience", type=float, default=shards.PATIENCE, help="seconds of silence that count as hanging"
    )
    parser.add_argument(
        "--substrate",
        choices=("host", "cuda"),
        default=os.environ.get("ANYMPS_SUBSTRATE") or "host",
        help="where the device computes (ANYMPS_SUBSTRATE)",
    )
    given = parser.parse_args()
    os.environ["ANYMPS_SUBSTRATE"] = given.substrate  # of the workers
    card = _card() if given.substrate == "cuda" else ""
    print(f"substrate {given.substrate} {card}".rstrip(), file=sys.stderr, flush=True)
    begun = time.monotonic()
    rows = shards.run(
        given.shards,
        MAC,
        given.operators,
        tell=lambda line: print(line, file=sys.stderr, flush=True),
        patience=given.patience,
    )
    for kind in ("forward", "gradient", "errors"):
        agreeing, scored = summary.share(row for row in rows if row["kind"] == kind)
        print(f"{kind}: {agreeing} of {scored} agree" + (f" ({100 * agreeing / scored:.2f} %)" if scored else ""))
    special = [row for row in rows if row["kind"] == "forward" and summary.discriminates(row)]
    for what in ("refuses", "fails", "runs"):
        agreeing, scored = summary.share(row for row in special if row["expected"] == what)
        print(f"the CPU would be wrong, MPS {what}: {agreeing} of {scored} agree")
    for row in rows:
        if given.operators and summary.agrees(row) is False:
            print(row["kind"], row["operator"], row["dtype"], row["expected"], row["actual"], row["detail"])
    print(f"{len(rows)} pairs in {time.monotonic() - begun:.0f} s")
    if given.rows:
        given.rows.write_text(json.dumps(rows))
    if given.write:
        import torch

        limits = (worker.LIMIT, worker.LIMIT_REFUSED)
        found = summary.summarize(rows, torch.__version__, limits, datetime.date.today(), card)
        summary.save(found, given.write)
        given.write.with_suffix(".md").write_text(page.render_folder(given.write))
    return 1 if any(row["actual"] in ("crash", "hang") for row in rows) else 0


def _card() -> str:
    """The name of the card that will compute."""
    from anymps.device._gpus import take_gpu

    return take_gpu().name


if __name__ == "__main__":
    sys.exit(main())
