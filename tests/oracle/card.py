"""`python -m tests.oracle.card HOST.json CARD.json`: how a card's results lie beside the host's, by the kept answers.

Both files are rows of `python -m tests.oracle --kept FILE --rows FILE`, on the substrates `host` and `cuda`. With
`--write docs/fidelity` the pairs that part are kept there, and docs/fidelity-kernels.md is rendered anew.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]
_VERDICTS = ("equal", "ulp", "different")


def beside(host: Iterable[Row], card: Iterable[Row], torch: str, name: str, kernels: str) -> dict[str, Any]:
    """What both came to, and the pairs whose verdicts or distances part."""
    pairs = {(row["operator"], row["dtype"]): row for row in host}
    both = [(pairs[row["operator"], row["dtype"]], row) for row in card if (row["operator"], row["dtype"]) in pairs]
    return {
        "torch": torch,
        "card": name,
        "kernels": kernels,
        "counts": [[sum(row["verdict"] == it for row in side) for it in _VERDICTS] for side in zip(*both, strict=True)],
        "apart": [
            [on_card["operator"], on_card["dtype"], _told(on_host), _told(on_card)]
            for on_host, on_card in both
            if _told(on_host) != _told(on_card)
        ],
    }


def load(folder: Path) -> list[dict[str, Any]]:
    """What was kept, the oldest release first."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("card-kernels-*.json"))]


def section(document: dict[str, Any]) -> list[str]:
    """The lines of the page about a card."""
    host, card = document["counts"]
    lines = [
        "",
        f"## On an NVIDIA card, torch {document['torch']}",
        "",
        f"The results of `--substrate cuda` on an {document['card']}, and of the same machine's CPU, compared with",
        f"saved results of the kernels of torch {document['kernels']} (`tests/oracle/kept.py`): {sum(card):,} pairs of",
        "operator and dtype. For the others, no result was saved.",
        "",
        "| computed on | equal | within n ulp | different |",
        "| --- | ---: | ---: | ---: |",
        f"| the host | {' | '.join(map(str, host))} |",
        f"| the card | {' | '.join(map(str, card))} |",
        "",
        "The pairs in which the two differ:",
        "",
        "| operator | dtypes | host and kernel | card and kernel |",
        "| --- | --- | --- | --- |",
    ]
    found: dict[tuple[str, str, str], list[str]] = {}
    for operator, dtype, on_host, on_card in document["apart"]:
        found.setdefault((operator, on_host, on_card), []).append(dtype)
    lines += [f"| {one} | {', '.join(dtypes)} | {a} | {b} |" for (one, a, b), dtypes in found.items()]
    return lines


def _told(row: Row) -> str:
    if row["verdict"] == "different":
        return f"different in {row['far']} of {row['elements']}"
    return f"within {row['ulps']} ulp" if row["verdict"] == "ulp" else "equal"


def main() -> None:
    """Prints the section, or writes it."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle.card")
    parser.add_argument("host", type=Path)
    parser.add_argument("card", type=Path)
    parser.add_argument("--torch", required=True, help="the release that computed")
    parser.add_argument("--name", required=True, help="the card")
    parser.add_argument("--kernels", required=True, help="the release of the kernels that answered")
    parser.add_argument("--write", type=Path, metavar="FOLDER")
    given = parser.parse_args()
    host, card = (json.loads(path.read_text(encoding="utf-8")) for path in (given.host, given.card))
    document = beside(host, card, given.torch, given.name, given.kernels)
    print("\n".join(section(document)))
    if given.write:
        from . import page

        minor = ".".join(given.torch.split(".")[:2])
        path = given.write / f"card-kernels-{minor}.json"
        path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        text = page.render(page.load(given.write), load(given.write))
        given.write.with_name("fidelity-kernels.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
