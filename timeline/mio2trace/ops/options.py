"""What the value of a MIOpenDriver option can be, and the options that several base words have (miopen-log.md 7).

Digits are ASCII's: the driver's atoi and atof take no others.
"""

from __future__ import annotations

from collections.abc import Mapping

INTEGER = r"-?[0-9]{1,18}"
SIZE = r"[0-9]{1,18}"
DECIMAL = r"[-+]?(?:(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][-+]?[0-9]{1,4})?|nan|inf)"
LIST = r"[0-9]{1,18}(?:,[0-9]{1,18}){0,1023}"
DIMENSIONS = r"[0-9]{1,18}(?:,[0-9]{1,18}){0,15}"
SHAPE = r"[0-9]{1,18}(?:x[0-9]{1,18}){0,7}(?:,[0-9]{1,18}(?:x[0-9]{1,18}){0,7})?"
LAYOUT = r"N(?:CHW|HWC|CDHW|DHWC|CW|WC)|NCHWc[48]|CHWNc?[48]?"
TYPE = r"fp(?:8|16|32|64)|bfp(?:8|16)|int8"
PATH = r"[A-Za-z0-9_./~:-]{1,255}|\((?:path|user|host)\)"  # in brackets: what was private
ANY = r"[A-Za-z0-9_.,:+-]{1,255}"

Options = Mapping[str, str]
"""Short names, and the regular expression for the whole value of each."""


def options(names: str, kind: str) -> dict[str, str]:
    """Those with values of one kind."""
    return dict.fromkeys(names.split(), kind)


SIZES = options("n c D H W", SIZE) | options("t V i w F forw", INTEGER)
SCALING = options("A B G", DECIMAL)
LAYOUTS = options("in_layout fil_layout out_layout layout I O", LAYOUT)
