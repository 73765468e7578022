"""TFProf's printed views: the scope view (a tree of names) and the op view (one row per op type) (tfprof.md 5).

    node name | requested bytes | total execution time | accelerator execution time | cpu execution time
    _TFProfRoot (--/772.49MB, --/20.26ms, --/0us, --/20.26ms)
      v/tower_0/cg/Relu (0B/0B, 2us/2us, 0us/0us, 2us/2us)

    NoOp                                  0B (0.00%, 0.00%),           4us (100.00%, 0.00%), ...

From a file, from the console between other lines, or as pasted rows, even quoted. Headers are not counted: rows are
recognised by their form, columns by the legend; without a legend, four fields are those of the original notebook.
Several reports in one text are several views. A report states its step only if its options are printed; else the file's
name may state it.
"""

from __future__ import annotations

from mio2trace.model.tf import TITLES, Printed, TfView, ViewRow
from mio2trace.notes import InputError, Notes
from mio2trace.patterns import late
from mio2trace.readers.base import ReadOptions, Records
from mio2trace.source import Source

NAME = "TFProf view (text)"

_ROOT = "_TFProfRoot"
_LEGEND = "node name | "
_NAMES = {title: name for name, title in TITLES.items()}
_NOTEBOOK = ("bytes", "micros", "accelerator_micros", "cpu_micros")
_COUNTS = ("params", "float_ops")
_NUMBER = r"[0-9]{1,18}(?:\.[0-9]{1,6})?(?:B|KB|MB|GB|us|ms|sec|min)"
_PAIR = late(rf"(?:--|({_NUMBER}))/({_NUMBER})")
_QUANTITY = late(r"(\d+)(?:\.(\d+))?([A-Za-z]+)")
_HAS_NUMBER = late(rf"(?:^|[ /]){_NUMBER}(?:/|$)|/{_NUMBER}$")
_LONGEST_LINE = 100_000
_PERCENT = r"\(-?[\d.]+%, ?-?[\d.]+%\)"
_OP_ROW = late(rf"(?P<name>\S+)\s+(?P<fields>{_NUMBER} {_PERCENT}(?:, *{_NUMBER} {_PERCENT})*)\s*")
_OP_FIELD = late(rf"({_NUMBER}) {_PERCENT}")
_STEP_OPTION = late(r"-step\s+(-?[0-9]{1,18})\s*")
_STEP_IN_NAME = late(r"step[_-]?(?:([0-9]{1,18})|(avg|average))(?![0-9A-Za-z])")
_SNIFF = late(rb"(?:^|\n)_TFProfRoot \(")


def sniff(head: bytes) -> bool:
    """Return whether it has the root line of a scope view, and is no log. An op view is in a console's text."""
    return b"_TFProfRoot (" in head and b"MIOpen" not in head and _SNIFF.search(head) is not None


def read(source: Source, options: ReadOptions, notes: Notes) -> Records:
    """Return the views in the text. Raises `InputError` if it has no row."""
    reader = _Reader(source, notes)
    for number, line in enumerate(source.lines(), 1):
        reader.is_ended = line.endswith(b"\n")
        reader.feed(number, line.decode("utf-8", "replace").rstrip("\r\n"))
    return [*reader.finish()]


class _Reader:
    def __init__(self, source: Source, notes: Notes) -> None:
        self._source = source
        self._notes = notes
        self._columns: tuple[str, ...] = ()
        self._step: int | None = None
        self._scope: list[ViewRow] = []
        self._ops: list[ViewRow] = []
        self._views: list[TfView] = []
        self._in_report = False
        self.is_ended = True
        """Whether the current line has a line end."""

    def feed(self, number: int, line: str) -> None:
        option = _STEP_OPTION.fullmatch(line)
        if option is not None:
            self._close()
            self._step = int(option[1])
        elif line.startswith(_LEGEND):
            self._close()
            titles = line.rstrip().split(" | ")[1:]
            self._columns = tuple(_NAMES[title] for title in titles if title in _NAMES)
            self._in_report = True
        elif line.startswith("====") and "End of Report" in line:
            self._close()
            self._step, self._columns, self._in_report = None, (), False
        else:
            self._row(number, line)

    def _lost(self, number: int) -> None:
        if self.is_ended:
            self._notes.add("row of a view that cannot be read: skipped", f"{self._source.name}:{number}")
        else:
            self._notes.cut_off(self._source.name, f"line {number}")

    def _row(self, number: int, line: str) -> None:
        row = _split(line)
        if row is None:
            found = _OP_ROW.fullmatch(line) if len(line) < _LONGEST_LINE else None
            if found is not None:
                self._op_row(number, found["name"], _OP_FIELD.findall(found["fields"]))
            elif self._in_report and self._scope and line.strip():
                self._lost(number)
            return
        name, fields = row
        if name == _ROOT:
            if self._scope:
                self._close()
            return
        columns = self._columns
        if not columns:
            if len(fields) != len(_NOTEBOOK):
                self._notes.add("row without a legend: skipped", f"{self._source.name}:{number}")
                return
            columns = _NOTEBOOK
        if columns[0] == "params" and not fields[0].endswith(" params"):
            fields = fields[1:]  # the variable's shape
        own: dict[str, Printed] = {}
        total: dict[str, Printed] = {}
        for column, field in zip(columns, fields, strict=False):
            if column in _COUNTS:
                continue
            pair = _PAIR.fullmatch(field)
            if pair is None:
                self._lost(number)
                return
            if pair[1]:
                own[column] = _printed(pair[1])
            total[column] = _printed(pair[2])
        self._scope.append(ViewRow(name=name, line=number, own=own, total=total))

    def _op_row(self, number: int, name: str, values: list[str]) -> None:
        columns = [column for column in self._columns if column not in _COUNTS]
        if len(columns) != len(values):
            self._notes.add("row without a legend: skipped", f"{self._source.name}:{number}")
            return
        own = dict(zip(columns, map(_printed, values), strict=True))
        self._ops.append(ViewRow(name=name, line=number, own=own, total=own))

    def _close(self) -> None:
        step = self._step
        if step is None:
            named = _STEP_IN_NAME.search(self._source.name)
            step = None if named is None else int(named[1] or -1)
        for view, rows in (("scope", self._scope), ("op", self._ops)):
            if rows:
                self._views.append(
                    TfView(source=self._source.index, view=view, rows=tuple(rows), step=step)  # type: ignore[arg-type]
                )
        self._scope, self._ops = [], []

    def finish(self) -> list[TfView]:
        """Return the views. Raises `InputError` if there is none."""
        self._close()
        if not self._views:
            raise InputError(f"{self._source.name}: no row of a TFProf view; expected its scope or op view")
        return self._views


def _split(line: str) -> tuple[str, list[str]] | None:
    """Return name and fields of a scope view's row, in which a field is a number; None for any other line."""
    name, opens, rest = line.strip(" \t'\",").partition(" (")
    if not opens or not rest.endswith(")") or not name or " " in name or len(line) > _LONGEST_LINE:
        return None
    fields = rest[:-1].split(", ")
    return (name, fields) if any(map(_HAS_NUMBER.search, fields)) else None


def _printed(text: str) -> Printed:
    found = _QUANTITY.fullmatch(text)
    assert found is not None
    whole, rest, unit = found.groups()
    return Printed(int(whole) * 100 + int(((rest or "") + "00")[:2]), unit)
