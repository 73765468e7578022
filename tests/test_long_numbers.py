"""Numbers of hundreds of digits, bytes of another encoding, wherever a text has a number or a word: the law holds."""

from __future__ import annotations

import io
import random

import msgspec
import pytest

from mio2trace.kernels.facts import plain_text
from mio2trace.model.tf import TfProfile
from mio2trace.notes import Notes
from mio2trace.ops import values
from mio2trace.readers.base import ReadOptions
from mio2trace.readers.tf import step_stats_text
from mio2trace.source import Source
from tests.fuzz import cases, law, looks, numbers
from tests.test_tfprof_damage import FILES, read, use

PIECES = 16
MADE = {
    f"{generator(random.Random(0)).kind} {place}": generator for place, generator in enumerate(cases.GENERATORS)
}  # fmt: skip


@pytest.mark.parametrize("name", MADE)
def test_numbers_of_any_length_and_letters_of_any_encoding_keep_the_law(name: str) -> None:
    """In each file of a made-up run, at places of every kind; the trace, and a command."""
    chance = random.Random(f"numbers {name}")
    verdicts = set()
    files = MADE[name](chance).files
    for place, file in enumerate(files):
        for data in numbers.changed(file, chance, PIECES // len(files)):
            changed = [*files[:place], data, *files[place + 1 :]]
            verdicts.add(law.judge(changed, 0, chance.choice(law.HOST_CALLS)))
            looks.judge_command(changed, looks.command(chance))
    assert verdicts


@pytest.mark.parametrize("name", ["text", "json", "view"])
def test_tensorflows_texts_with_numbers_of_any_length(name: str) -> None:
    """All that is made of them, too."""
    reader, data = FILES[name]
    chance = random.Random(name)
    found = [read(reader, changed) for changed in numbers.changed(data, chance, 100)]
    for one in found:
        if one is not None:
            use(one[0])
    assert any(found)


@pytest.mark.parametrize("digits", [19, 20, 21, 400, 5000])
def test_a_number_of_more_than_64_bits_is_none_and_counted(digits: int) -> None:
    data = FILES["text"][1].replace(b"output {", b"memory { total_bytes: %s }\n output {" % (b"8" * digits))
    notes = Notes()
    source = Source("-", 0, notes, stdin=io.BytesIO(data))
    (profile,) = step_stats_text.read(source, ReadOptions(), notes)
    assert isinstance(profile, TfProfile)
    held = {memory.requested_bytes for node in profile.nodes for step in node.steps for memory in step.memory}
    lost = sum(note.count for note in notes if note.kind == "number of more than 64 bits: skipped")
    assert (held == {0}, lost > 0) == ((digits > 19), (digits > 19))


@pytest.mark.parametrize(
    "source",
    [
        b'{"0":"// caf\xe9\\n#define A 1\\n__kernel void f()"}',
        b"// caf\xe9\\n#define A 1\\n__kernel void f()",
        b"// caf\xe9\n#define A 1\n__kernel void f()",
        b'{"' + b"[" * 100_000,
        b'{"0":' + b"[" * 100_000,
    ],
    ids=["object", "inside of a string", "plain", "cut", "deep"],
)
def test_a_programs_source_may_be_of_any_encoding(source: bytes) -> None:
    text = plain_text(source)
    assert isinstance(text, str)
    if b"#define" in source:
        assert "\n#define A 1\n" in text
        assert msgspec.json.encode(text)


def test_a_number_that_a_trace_cannot_hold_as_one_is_none() -> None:
    """A workspace of 2^63 bytes was text in the trace, where all others are numbers."""
    assert values.number("999999999999999999") == 999_999_999_999_999_999
    assert values.number(str(1 << 63)) is None
