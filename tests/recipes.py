"""`python -m tests.recipes` runs the programs of docs/recipes and writes them and their reports into the pages.

A page has two places for each, `<!-- before -->` and `<!-- after -->`; all up to the next heading is generated.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).parent))  # as pytest has it

from checkpoint_files import save_on
from processes import MAC, run_command

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "recipes"
PROGRAMS = FOLDER / "programs"
RECIPES = sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != "README")
SIZES = PROGRAMS / "fine_tuning_sizes.py"
MACS = ("M3 8GB", "M4 16GB", "M4 Pro 24GB", "M3 Pro 36GB")

# Runs the named programs, each recorded by itself, and prints the short report and the findings of each as JSON.
RUN = """
import gc, json, os, pathlib, sys
import torch, anymps
from anymps.findings import Story, find
from anymps.report import render_summary
anymps.enable({mac!r}, start_method="system")
found = {{}}
for path in map(pathlib.Path, {paths!r}):
    with anymps.record(script=path.name) as capture:
        try:
            exec(compile(path.read_text(), str(path), "exec"), {{"__name__": "__main__", "__file__": str(path)}})
        except Exception as error:
            from anymps.capture import ending_of
            capture.close(ending_of(error))  # while its frames hold their tensors, as in `anymps run`
        else:
            capture.close({{"status": 0}})
    findings = find(capture.recording)
    found[path.stem] = [[it.id for it in findings], render_summary(Story.of(capture.recording), findings, width=500)]
    gc.collect()
    torch.mps.empty_cache()  # what one program kept is no finding of the next
    if "PYTORCH_MPS_HIGH_WATERMARK_RATIO" not in os.environ:
        torch.mps.set_per_process_memory_fraction(1.7)  # the default
    torch._dynamo.reset()
print("\\n" + json.dumps(found))
"""


_BEGINS = re.compile(r"Change first:|Then:|Findings:|Time on the Mac:|A step:|Memory:|  \S")
_CUT = (
    (r"(?<=\.) (?:A step: about|Data loading would limit|No time is predicted) .*", ""),  # its time
    (r"^(Change first: [^,]*), .*", r"\1"),
    (r" ?Memory: \S+ \S+ of \S+ GiB\.|^Time on the Mac: .*", ""),
)


@dataclass(frozen=True)
class Report:
    """What a program's run gave: the findings' rules, and the short report without what depends on the machine."""

    findings: list[str]
    text: str


def variables(program: Path) -> tuple[tuple[str, str], ...]:
    """What the first line asks of the environment: `# NAME=value`."""
    match = re.match(r"# (\w+)=(\S+)\n", program.read_text())
    return ((match[1], match[2]),) if match else ()


def run_programs() -> dict[str, Report]:
    """The report of each program, by its name without `.py`. One process for each environment."""
    groups: dict[tuple[tuple[str, str], ...], list[Path]] = {}
    for path in sorted({*PROGRAMS.glob("*.py")} - {SIZES}):
        groups.setdefault(variables(path), []).append(path)
    found: dict[str, tuple[list[str], str]] = {}
    with TemporaryDirectory() as folder:
        torch.manual_seed(0)
        save_on("cuda:0", torch.nn.Linear(8, 1).state_dict(), Path(folder, "saved_on_cuda.pt"))
        layers = torch.nn.Sequential(*(torch.nn.Linear(1536, 1536) for _ in range(8)))
        save_file(layers.state_dict(), Path(folder, "weights.safetensors"))
        for environment, paths in groups.items():
            names = [shutil.copy(path, folder) and path.name for path in paths]
            code = RUN.format(mac=MAC, paths=names)
            env = {"PYTORCH_ENABLE_MPS_FALLBACK": "0", **dict(environment)}
            answer = run_command("-c", code, cwd=Path(folder), env=env)
            found |= json.loads(answer.lines[-1])
    return {name: Report(rules, shown(text)) for name, (rules, text) in found.items()}


def shown(summary: str) -> str:
    """The short report without what depends on the machine or on the programs before, in lines that fit a page."""
    lines: list[str] = []
    for line in summary.splitlines():
        if _BEGINS.match(line) or not lines:
            lines.append(line)
        else:  # it did not fit
            lines[-1] += f" {line.strip()}"
    cut = [reduce(lambda text, pattern: re.sub(*pattern, text), _CUT, line).rstrip() for line in lines]
    return "\n".join(
        textwrap.fill(line, 100, subsequent_indent=" " * 10, break_on_hyphens=False, break_long_words=False)
        for line in cut
        if line
    )


def filled(page: str, name: str, reports: dict[str, Report]) -> str:
    """The text of a page with its programs and their reports."""
    for half in ("before", "after"):
        program = (PROGRAMS / f"{name}_{half}.py").read_text()
        block = f"```python\n{program}```\n\n```text\n{reports[f'{name}_{half}'].text}\n```\n"
        place = rf"(?<=<!-- {half} -->\n)(?:.*\n)*?(?=\n## (?:After|In a trainer))"
        page, number = re.subn(place, lambda _, block=block: block, page, count=1)  # type: ignore[misc]
        if not number:
            raise ValueError(f"{name}.md has no place for {half}")
    return page


def sizes() -> str:
    """The table of models and Macs in the recipe of fine-tuning: what plans of `SIZES` say."""
    rows = [("model", "weights", "peak", *MACS), ("---",) * (3 + len(MACS))]
    for model in ("1B", "3B", "8B"):
        macs = [word for mac in MACS for word in ("--mac", mac)]
        options = (*macs, "--no-larger", "--seconds", "600", "--what-if", "nf4", "--report", "json=plan.json")
        with TemporaryDirectory() as folder:
            answer = run_command("-m", "anymps", "plan", *options, str(SIZES), model, cwd=Path(folder), timeout=1200)
            assert answer.status == 0, answer.err
            plan = json.loads(Path(folder, "plan.json").read_text())
        for kind, found in (("bf16", {**plan, **plan["peak"]}), ("nf4", plan["what_if"][0])):
            steps = {one["mac"]: one["seconds"] for one in found["times"]}
            verdicts = {one["mac"]: one["verdict"] for one in found["macs"]}
            cells = [verdicts[mac] + (f", {steps[mac]:.2g} s" if steps.get(mac) else "") for mac in MACS]
            peak = found.get("reserved") or found["peak_reserved"]
            rows.append((model, kind, f"{peak / 2**30:.1f} GiB", *cells))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def with_sizes(page: str, table: str) -> str:
    """The text of the page with that table."""
    return re.sub(r"(?<=<!-- macs -->\n)(?:\|.*\n)*", lambda _: table, page)


def main() -> int:
    """Write the pages."""
    reports = run_programs()
    for name in RECIPES:
        path = FOLDER / f"{name}.md"
        path.write_text(filled(path.read_text(), name, reports))
    path = FOLDER / "fine_tuning.md"
    path.write_text(with_sizes(path.read_text(), sizes()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
