"""Values that are none: what a mutation puts in the place of a number, a text, a key."""

from __future__ import annotations

import random

from tests.fuzz.structures import NAMES

Chance = random.Random

NUMBERS = (
    "0", "-0", "-1", "1", "2", "3", "00", "007", "1e5", "1.5", "0.0", "-0.5", "1e400", "-1e400", "1e-320", "1e308",
    "NaN", "nan", "Infinity", "-inf", "127", "255", "65536", "2147483647", "2147483648", "4294967295", "4294967296",
    "9007199254740993", "9223372036854775806", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "-9223372036854775809", "18446744073709551615", "18446744073709551616", "99999999999999999999", "9" * 30,
    "1000000000000000", "0x10", "0x", "0x7ffc12345678", "0xffffffffffffffff", "1_000", "1,5", "+5", " 5", "5 ", "5x",
    "", "²", "٣", "１２", "½", "೬", "null", "true", "false", "[]", "{}", '""', "0.1e1", "1.", ".5", "1e", "--1", "1-2",
)  # fmt: skip
HUGE = ("9" * 4301, "1" + "0" * 5000, "-" + "7" * 4400, "0." + "3" * 5000, "0" * 4400 + "1")
TEXTS = (
    *NAMES, " ", "\n", "\r", "\t\t", "\u2028", "\u202eabc", "\ufeff", "\x7f", "\ud800", "a" * 255, "a" * 4097, "=1+1",
    "@SUM(1)", "+1", "-x", "; touch X", "$(touch X)", "`touch X`", "a|b", "*", "?", "~", "a\\b", "'", "</script>",
    "![x](y)", "|a|", "/", "//", "a//b", "tower_0/v/cg/conv1/Conv2D", "_Z1fv", "_ZN1aI1bE", "Cijk_Ailk_Bljk_SB_MT64x64",
    "naive_conv", "[]", "{}", "{", "]", ":", ",", "=", "\t:", "N", "0x", "user@host.lan", "2026-11-20T10:00:00",
)  # fmt: skip
KEYS = ("", "call", "name", "a", "\x00", "timestamp", "profiling", "errcode", "source", "0", "é", "__class__", "run")


def number(chance: Chance) -> str:
    """Digits that a reader may not expect; now and then thousands of them."""
    if chance.random() < 0.01:
        return chance.choice(HUGE)
    if chance.random() < 0.3:
        return str(chance.choice((1, -1)) * (chance.choice((1, 1 << chance.randrange(70))) + chance.randint(-1, 1)))
    return chance.choice(NUMBERS)


def text(chance: Chance) -> str:
    if chance.random() < 0.1:
        return chance.choice(TEXTS) * chance.choice((2, 3, 40))
    return chance.choice(TEXTS)
