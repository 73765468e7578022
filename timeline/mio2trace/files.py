"""Files: the inputs of a run as records, each content once, without private text; and outputs that are replaced as a
whole.

The order and the names of the inputs change nothing except the order of their notes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, BinaryIO, Literal

import msgspec

from mio2trace.model.profile import Anchors, Profile, anchors_of
from mio2trace.notes import LEADS_OUT, UNREADABLE, InputError, Notes, OptionError, with_losses
from mio2trace.outgoing import count
from mio2trace.patterns import late
from mio2trace.privacy import Cleaner, is_pseudonym
from mio2trace.readers import ANY, CK, PROFILES, READERS, Accepted, GoesWithATrace, detect, refusal, run_log
from mio2trace.readers.base import Reader, ReadOptions, Record
from mio2trace.source import Manifest, Source, is_archive, is_unpacked, leads_out, unpacked, unpacked_in

if TYPE_CHECKING:
    from pathlib import Path  # imported where a folder is searched: it loads all that knows URLs

__all__ = [
    "STANDARD_INPUT", "FileOptions", "FilePath", "Input", "Progress", "Unpacking", "read_inputs", "replacing",
    "short_names", "standard_output",
]  # fmt: skip

FilePath = str | os.PathLike[str]
_ROTATED = late(r"(.+)\.(\d{1,4})(?:\.gz)?")
Progress = Callable[[str, int, int], None]
"""Is called with an input's name, the bytes read, and all bytes (0 if unknown)."""
TABLES_SUFFIX = ".parquet"
"""The suffix of a folder of tables, which is no trace."""
STANDARD_INPUT = "-"


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was read, or one repetition of a CK record.

    ``source``: its place among the given files, also in the field ``source`` of its records. ``name``: as short as it
    can be and still distinct; never written to a trace. ``path``: as given, or the point of a CK directory. ``size``
    and ``sha256``: of the stored file; ``content_sha256``: of its decompressed content. ``parts``: size and hash of
    each stored file that was read with it (tables of one set). ``stated_ns``: times of the whole repetition that CK
    states (`readers.ck.MEASURES`). For a file in an archive of `mio2trace record`: ``archive`` is the path of
    the archive, ``anchors`` the clocks that were read before and after the run, ``is_reference`` whether it is of the
    run without MIOpen's log. ``problems``: kinds and counts of the problems that its reader noted.
    """

    source: int
    name: str
    path: str
    format: str
    size: int
    sha256: str
    content_sha256: str
    records: tuple[Record, ...]
    parts: tuple[tuple[int, str], ...] = ()
    repetition: int | None = None
    stated_ns: Mapping[str, int] = MappingProxyType({})
    archive: str = ""
    anchors: Anchors | None = None
    is_reference: bool = False
    problems: Mapping[str, int] = MappingProxyType({})

    def __repr__(self) -> str:
        of = "" if self.repetition is None else f", repetition {self.repetition}"
        size = f"{count(self.size, 'byte')}, {count(len(self.records), 'record')}"
        return f"<Input {self.name!r}: {self.format}{of}, {size}>"


_PATTERNS = ("*", "*/*", "plugins/profile/*/*")
"""Patterns of files to look for in a directory; the last ones are TensorBoard's."""


_DEEPEST, _MOST_LOOKED_AT = 6, 200
"""Folders one in the other, and files, that are looked at to name a folder which holds a profile."""


class FileOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to read files. ``host_calls``: keep every API call. ``functions``: keep the Python functions of long gaps.
    ``every_message``: keep every message of a library's log. ``tags``: choose in a CK directory. ``repetition``: of a
    CK record, from 0; ``"every"``: each is an input. ``keep``: kinds of private text to leave in
    (`mio2trace.privacy.KINDS`). ``max_input``: the most decompressed bytes of an input. ``accepted``: formats.
    ``copies``: files with the same content count separately. ``progress``: is called with the number of bytes read.
    """

    host_calls: bool = False
    functions: bool = True
    every_message: bool = False
    tags: tuple[str, ...] = ()
    repetition: int | Literal["every"] | None = None
    keep: tuple[str, ...] = ()
    max_input: int | None = None
    accepted: Accepted = ANY
    copies: bool = False
    progress: Progress | None = None


def read_inputs(
    files: Sequence[FilePath], options: FileOptions, notes: Notes, cleaner: Cleaner, *, references: bool
) -> list[Input]:
    """Return the inputs, sorted by format and hash; of equal files in a folder one is kept. ``references``: also read
    the runs without MIOpen's log in archives.

    Raises `InputError` for an unusable input; `OptionError` if there is no input, or if standard input is given twice.
    """
    if not files:
        raise OptionError("no input; expected the files of a run")
    given = [os.fspath(file) for file in files]
    if given.count(STANDARD_INPUT) > 1:
        raise OptionError("standard input (-) can be given once")
    with Unpacking(options.max_input) as unpacking:
        read = _read_all(given, options, notes, cleaner, unpacking, references=references)
    first_of: dict[tuple[bool, str, str], list[Input]] = {}
    folders = {found[0].content_sha256: _folder(found[0]) for found, _ in read if found[0].path != STANDARD_INPUT}
    for found, _ in read:
        same = _same(found[0], folders)
        first_of[same] = min(first_of.get(same, found), found, key=lambda other: (other[0].sha256, other[0].source))
    inputs: list[Input] = []
    for found, own in read:
        if options.copies or found is first_of[_same(found[0], folders)]:
            inputs += found
            notes.include(own)
        else:
            notes.remark("input given twice: used once", found[0].name)
    inputs.sort(key=lambda file: (file.format, file.sha256, file.repetition or 0))
    records = cleaner.cleaned([record for file in inputs for record in file.records])
    clean = iter(records)
    return [msgspec.structs.replace(file, records=tuple(islice(clean, len(file.records)))) for file in inputs]


def _folder(file: Input) -> str:
    return os.path.dirname(os.path.abspath(file.path))


def _same(file: Input, folders: Mapping[str, str]) -> tuple[bool, str, str]:
    """Return a key; of inputs with equal keys only one is used. Equal files in different folders may belong to
    different runs, and a program may print the same with MIOpen's log and without (`mio2trace.runs`). Standard input
    counts as being in the folder of a file with its content (``folders``)."""
    folder = folders.get(file.content_sha256, "") if file.path == STANDARD_INPUT else _folder(file)
    return file.is_reference, file.content_sha256, folder


def _read_all(
    given: Sequence[str],
    options: FileOptions,
    notes: Notes,
    cleaner: Cleaner,
    unpacking: Unpacking,
    *,
    references: bool,
) -> list[tuple[list[Input], Notes]]:
    """Return the inputs and notes of each file, except of files that were read with another one."""
    try:
        paths = [located for path in given for located in _located(path, options, notes, unpacking)]
    except FileNotFoundError as error:  # a folder within one of them was removed meanwhile
        raise InputError(f"{error.filename}: {error.strerror}") from None
    if not paths:
        raise InputError(f"{os.path.basename(given[0])}: holds no input; expected {options.accepted.expected}")
    # Not necessary: an error in one of these is only reported.
    spare = frozenset(unpacking.references if references else ())
    paths += unpacking.references if references else ()
    names = short_names([unpacking.shown(path) for path in paths])
    read: list[tuple[list[Input], Notes]] = []
    tables: list[tuple[str, GoesWithATrace]] = []
    taken: set[str] = set()
    older_of = _rotated(paths)
    later = {path for older in older_of.values() for path in older}
    # Older files of a rotated log come last: they are read with the newest one, or else by themselves.
    for index, path in sorted(enumerate(paths), key=lambda one: one[1] in later):
        own = Notes()
        source = Source(path, index, own, progress=options.progress, max_input=options.max_input)
        if path != STANDARD_INPUT:
            source.name = names[index]
        try:
            read += _read_one(source, path, options, cleaner, older_of.get(path, ()), taken)
        except GoesWithATrace as error:
            tables.append((path, error))
        except InputError as error:
            if path not in spare:
                raise InputError(with_losses(str(error), own)) from None
            notes.add(f"run without MIOpen's log that cannot be read: {error}")
    for path, found in tables:
        if os.path.realpath(path) in taken:
            continue
        # `*.csv` also names such tables.
        of_folder = (
            (first.records, own) for (first, *_), own in read if os.path.dirname(first.path) == os.path.dirname(path)
        )
        beside = next((own for records, own in of_folder if any(isinstance(one, Profile) for one in records)), None)
        if beside is None:
            raise found
        beside.remark("table that the profiler wrote beside the trace: skipped", os.path.basename(path))
    return [([unpacking.told(file) for file in files], own) for files, own in read]


def _read_one(
    source: Source, path: str, options: FileOptions, cleaner: Cleaner, older: Sequence[str], taken: set[str]
) -> list[tuple[list[Input], Notes]]:
    """Return the inputs and notes of the file, unless it is among the real paths ``taken``; add those that it takes."""
    with contextlib.closing(source):
        if source.path and os.path.realpath(source.path) in taken:
            return []
        read = _read(source, path, options, cleaner, older)
        taken.update(os.path.realpath(other.path) for other in source.companions)
        problems = {note.kind: note.count for note in source.notes.problems}
        return [([msgspec.structs.replace(one, problems=problems) for one in read], source.notes)]


def _rotated(paths: Sequence[str]) -> dict[str, list[str]]:
    """Return the older files of each rotated log among ``paths``, oldest first: ``run.log.2``, ``run.log.1``."""
    older: dict[str, list[tuple[int, str]]] = {}
    for path in paths:
        found = _ROTATED.fullmatch(path)
        if found is not None:
            older.setdefault(found[1], []).append((-int(found[2]), path))
    newest = {path.removesuffix(".gz"): path for path in paths}
    return {newest[stem]: [path for _, path in sorted(its)] for stem, its in older.items() if stem in newest}


class _NoInput(InputError):
    """An archive that holds neither a profile nor a log."""


class Unpacking:
    """The archives among the inputs, unpacked while this context lasts. Members are shown as if the archive were a
    folder. A folder with the members and the manifest of an archive counts as an archive. ``references``: the paths of
    inputs that belong to a run without MIOpen's log."""

    def __init__(self, max_input: int | None) -> None:
        self._max_input = max_input
        self._stack = contextlib.ExitStack()
        self._archives: dict[str, tuple[str, Manifest | None]] = {}
        """By folder, the archive whose members are in it, and its statements."""
        self.references: list[str] = []

    def __enter__(self) -> Unpacking:
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def inputs_of(self, path: str, accepted: Accepted, notes: Notes) -> list[str]:
        """Return the paths of those members of an archive that are inputs. Raises `InputError` if there is none."""
        made = unpacked_in(path) if os.path.isdir(path) else self._stack.enter_context(unpacked(path, self._max_input))
        self._archives[made.folder] = path, made.manifest
        if made.manifest is not None:
            self.references += [os.path.join(made.folder, member) for member in made.manifest.reference]
            return [os.path.join(made.folder, member) for member in made.manifest.inputs]
        from pathlib import Path

        members = sorted(Path(made.folder, member) for member in made.members)
        readers = READERS if accepted.readers is None else accepted.readers
        found = _inputs_among(members, readers, os.path.basename(path), "an archive", notes, accepted.readers is None)
        if not found:
            what = _of_no_use(members, made.folder) or f"archive without {accepted.expected}"
            raise _NoInput(f"{os.path.basename(path)}: {what}")
        return found

    def shown(self, path: str) -> str:
        """Return a member's path as if the archive were a folder; any other path unchanged."""
        for folder, (archive, _) in self._archives.items():
            if path.startswith(os.path.join(folder, "")):
                return archive + path[len(folder) :]
        return path

    def told(self, file: Input) -> Input:
        """Return the file with its path as it is shown, and with the statements of its archive."""
        folder = next((one for one in self._archives if file.path.startswith(os.path.join(one, ""))), None)
        if folder is None:
            return file
        archive, manifest = self._archives[folder]
        number = list(self._archives).index(folder)
        return msgspec.structs.replace(
            file,
            records=tuple(_of_archive(record, number) for record in file.records),
            path=self.shown(file.path),
            archive=archive,
            anchors=None if manifest is None else anchors_of(manifest.told),
            is_reference=file.path in self.references,
        )


def _of_archive(record: Record, number: int) -> Record:
    """Return the record with clocks of this archive's machines: each bundle calls its first one ``machine 1``."""
    if not number or not isinstance(record, Profile):
        return record
    clocks = tuple(
        msgspec.structs.replace(clock, scope=f"{clock.scope} of archive {number}")
        if is_pseudonym("machine", clock.scope)
        else clock
        for clock in record.clocks
    )
    return msgspec.structs.replace(record, clocks=clocks)


def _located(path: str, options: FileOptions, notes: Notes, unpacking: Unpacking) -> list[str]:
    """Return the file itself, the inputs in an archive, the point of a CK directory, or the profiles and logs in a
    directory."""
    if path == STANDARD_INPUT:
        return [path]
    if is_archive(path) or is_unpacked(path):
        return unpacking.inputs_of(path, options.accepted, notes)
    if not os.path.isdir(path):
        return [path]
    from pathlib import Path

    from mio2trace.readers import ck

    if options.accepted.readers is None and not options.tags and not ck.is_directory(path):
        there = sorted(file for pattern in _PATTERNS for file in Path(path).glob(pattern) if file.is_file())
        files = [file for file in there if not leads_out(str(file), path)]
        if len(files) < len(there):
            notes.add(LEADS_OUT, _readable(Path(path).name or path), len(there) - len(files))
        archives = [str(file) for file in files if is_archive(str(file))]
        plain = [file for file in files if str(file) not in archives]
        profiles = _inputs_among(plain, PROFILES, Path(path).name or path, "a folder", notes)
        empty: list[_NoInput] = []
        for archive in archives:
            try:
                profiles += unpacking.inputs_of(archive, ANY, notes)
            except _NoInput as error:
                empty.append(error)
        if profiles:
            for one in empty:
                notes.remark("archive of a folder left out", str(one))
            return profiles
        if empty:
            raise empty[0]
        refused = _of_no_use(plain, path)
        if refused is not None:
            raise InputError(f"{Path(path).name or path}: {refused}")
        deeper = _with_profiles_below(path)
        if deeper is not None:
            said = "no profile and no log in it, nor in its folders; expected a folder that holds them"
            raise InputError(f"{Path(path).name or path}: {said}: {_readable(deeper)} holds a profile")
    return [ck.locate(path, options.tags, notes)]


def _with_profiles_below(path: str) -> str | None:
    """Return the first folder far below ``path``, relative to it, that holds a profile; links are not followed."""
    files = 0
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if folder[len(path) :].count(os.sep) >= _DEEPEST:
            folders.clear()
        for name in sorted(names):
            files += 1
            if files > _MOST_LOOKED_AT:
                return None
            file = os.path.join(folder, name)
            with contextlib.suppress(InputError, OSError):
                if not stat.S_ISREG(os.lstat(file).st_mode):
                    continue
                with contextlib.closing(Source(file, 0, Notes())) as source:
                    if any(reader.sniff(source.head) for reader in PROFILES):
                        return os.path.relpath(folder, path)
    return None


def _inputs_among(
    files: Sequence[Path], readers: Sequence[Reader], name: str, of: str, notes: Notes, logs_too: bool = True
) -> list[str]:
    """Return the ``files`` whose content one of ``readers`` knows, then the logs, which may contain a profile. ``name``
    and ``of``: their place, for a note on the other files."""
    found: list[str] = []
    logs: list[str] = []
    others: list[str] = []
    for path in files:
        with contextlib.suppress(InputError), contextlib.closing(Source(str(path), 0, Notes())) as source:
            if any(reader is not run_log and reader.sniff(source.head) for reader in readers):
                found.append(str(path))
                continue
            is_text = logs_too and refusal(source.head, path.name) is None and run_log.sniff(source.head)
            if is_text and run_log.is_log_later(source):
                logs.append(str(path))
                continue
        others.append(path.name)
    if found:
        from mio2trace.readers.rocm.v3_csv import AGENTS

        for other in (other for other in others if not other.endswith(AGENTS)):  # the tables beside it use it
            notes.remark(f"file of {of} that is neither profile nor log: skipped", _readable(f"{name}/{other}"))
    return found + logs


def _of_no_use(files: Sequence[Path], folder: str) -> str | None:
    """Describe the first known file of a place without inputs, and what to give instead; None if no file is known."""
    for path in files:
        name = str(path.relative_to(folder))
        with contextlib.suppress(InputError), contextlib.closing(Source(str(path), 0, Notes())) as source:
            refused = refusal(source.head, name)
            other = next((reader for reader in READERS if reader is not run_log and reader.sniff(source.head)), None)
            if other is not None:  # a format that a directory does not represent
                refused = f"is a {other.NAME}; expected that file itself"
            if refused is not None:
                return f"no profile and no log in it: {_readable(name)} {refused}"
    return None


def _parts(path: str) -> tuple[str, ...]:
    root = (os.sep,) if path.startswith(os.sep) else ()
    return (*root, *(part for part in path.split(os.sep) if part not in ("", os.curdir)))


def short_names(paths: Sequence[str]) -> list[str]:
    """Return the last part of each path, with as many more parts as make it distinct: ``A/run.log``, ``B/run.log``."""
    parts = [_parts(path) or (path,) for path in paths]
    lengths = [1] * len(paths)
    while True:
        shown = [own[-length:] for own, length in zip(parts, lengths, strict=True)]
        shown_as: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
        for own, last in zip(parts, shown, strict=True):
            shown_as.setdefault(last, set()).add(own)
        alike = [place for place, last in enumerate(shown) if last != parts[place] and len(shown_as[last]) > 1]
        if not alike:
            return [_readable(os.path.join(*own)) for own in shown]
        for place in alike:
            lengths[place] += 1


def _readable(name: str) -> str:
    """Return a name as text: its bytes may not be valid UTF-8, and its text may not be encodable."""
    try:
        return os.fsencode(name).decode(errors="replace")
    except UnicodeEncodeError:
        return name.encode(errors="backslashreplace").decode()


def _with_defects(record: Record, defects: Mapping[str, int]) -> Record:
    """Mark a profile as incomplete because its file is cut off, or has records that could not be read."""
    if not isinstance(record, Profile):
        return record
    return msgspec.structs.replace(record, defects={**record.defects, **defects})


def _read(source: Source, path: str, options: FileOptions, cleaner: Cleaner, older: Sequence[str] = ()) -> list[Input]:
    """Return the input, or its repetitions. ``older``: the older files of a rotated log."""
    notes = source.notes
    cleaner.learn(source.head)
    reader = detect(source, options.accepted)
    if reader is run_log and older:
        notes.remark(
            f"log in {1 + len(older)} files: lines are counted through all of them, the oldest first", source.name
        )
        for part in older:
            if (companion := source.companion(part)) is not None:
                cleaner.learn(companion.head)
    kept = ReadOptions(host_calls=options.host_calls, functions=options.functions, every_message=options.every_message)
    found: list[tuple[list[Record], int | None, Mapping[str, int]]]
    if reader is CK and options.repetition is not None:
        from mio2trace.readers import ck

        found = [*ck.repetitions(source, options.repetition, kept, notes)]
    else:
        found = [(reader.read(source, kept, notes), None, MappingProxyType({}))]
    source.drain()
    defects = {"cut-off": 1} if any(note.is_cut for note in notes) else {}
    if unreadable := sum(note.count for note in notes if note.kind == UNREADABLE):
        defects["unreadable"] = unreadable
    if defects:
        found = [
            ([_with_defects(record, defects) for record in records], number, stated)
            for records, number, stated in found
        ]
    source.close()  # the hashes are known only now
    lead = source.lead
    parts = tuple(sorted((other.size, other.sha256) for other in (source, *source.companions) if other is not lead))
    return [
        Input(
            source=source.index,
            name=source.name if lead is source else lead.name,
            path=path if lead is source else lead.path,
            format=reader.NAME,
            size=lead.size,
            sha256=lead.sha256,
            content_sha256=lead.content_sha256,
            parts=parts,
            records=tuple(records),
            repetition=number,
            stated_ns=stated_ns,
        )
        for records, number, stated_ns in found
    ]


# -- Outputs that are replaced as a whole, and standard output with its errors in one line -----------------------------


@contextlib.contextmanager
def standard_output() -> Iterator[BinaryIO]:
    """Raises `InputError` if it is closed or cannot be written. If its reader is gone, `BrokenPipeError` is raised."""
    stdout = getattr(sys.stdout, "buffer", None)
    if stdout is None:
        raise InputError("standard output: closed")
    try:
        yield stdout
        stdout.flush()
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise  # the reader has stopped reading
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the rest of the buffer is dropped without a message
        raise InputError(f"standard output: {error.strerror or error}") from None


@contextlib.contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """Yield a file that replaces ``path`` when it is complete, and that leaves no trace otherwise.

    Raises `InputError` if the place cannot be written.
    """
    try:
        real = os.path.realpath(path)
        is_device = _is_device(real)
    except OSError as error:  # the current folder was removed, the name is too long
        raise InputError(f"{path}: cannot write there: {error.strerror or error}") from None
    if is_device:
        try:
            with open(real, "wb") as device:
                yield device
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from None
        return
    with replaced(real, path) as temporary, open(temporary, "wb") as file:
        yield file


def _is_device(place: str) -> bool:
    """Return whether it is /dev/null or a pipe: it cannot be replaced."""
    try:
        return not stat.S_ISREG(os.stat(place).st_mode)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
        return False


@contextlib.contextmanager
def replaced(place: FilePath, name: str) -> Iterator[str]:
    """Yield an empty file beside ``place`` that replaces it at the end, and that leaves no trace after an error.
    ``name``: of the place, for messages.

    Raises `InputError` if the place cannot be written.
    """
    try:
        handle, temporary = tempfile.mkstemp(
            prefix=".mio2trace-", suffix=".tmp", dir=os.path.dirname(place) or os.curdir
        )
    except OSError as error:
        raise InputError(f"{name}: cannot write there: {error.strerror or error}") from None
    os.close(handle)
    try:
        yield temporary
        os.chmod(temporary, os.stat(place).st_mode & 0o7777 if os.path.exists(place) else 0o666 & ~umask())
        os.replace(temporary, place)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            raise InputError(f"{name}: {error.strerror or error}; what was there before is unchanged") from None
        raise


def umask() -> int:
    """Return the permission bits that a new file of this process does not get."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
