"""Torch's OpInfo database on the mps device, against what torch's own lists say a Mac does.

`python -m tests.conformance` runs all of it and writes `docs/fidelity.md`. The parts: `expectations` (what a Mac does),
`checks` (what the device does), `worker` (one process), `shards` (many processes, none of which may take the run down),
`page` (the report).
"""
