"""What the numbers in a call refer to: the line that made it, and its operator with the tensors."""

from __future__ import annotations

from anymps._vocabulary import Fate
from anymps.record._facts import Signature, Site
from anymps.record._open_file import OpenFile
from anymps.record._rows import Rows
from anymps.record._strict import read_form, read_texts


def read_sites(rows: Rows) -> dict[int, Site]:
    """The lines of code by number, each with all lines that the recording holds of its file."""
    files: dict[str, dict[int, str]] = {}
    found = rows("SELECT * FROM sites")
    sites = {identity: Site(*(*columns, files.setdefault(columns[0], {}))) for identity, *columns in found}
    for site in sites.values():
        if site.around:
            files[site.file].update(enumerate(site.around.split("\n"), site.first))
    return sites


def read_signatures(file: OpenFile) -> dict[int, Signature]:
    """Operators with their fate and tensors, by number. Raises RecordingError for a damaged one."""
    found = file.rows(
        "SELECT s.id, o.name, s.fate, s.inputs, s.outputs, s.form FROM signatures s "
        "JOIN operators o ON o.id = s.operator"
    )
    read = file.read
    return {
        identity: Signature(
            name, file.word(Fate, fate), read(read_texts, inputs), read(read_texts, outputs), read(read_form, form)
        )
        for identity, name, fate, inputs, outputs, form in found
    }
