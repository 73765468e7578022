"""Words that stand where names do and name nobody."""

from __future__ import annotations

from typing import Final

OF_NOBODY: Final = frozenset(
    """
    root user users ubuntu debian centos fedora admin administrator test tests work home build builds builder dev docker
    jenkins runner ci caffe miopen rocm rocmuser amd gpu host localhost local share shared public src bin opt data input
    output loss prob label conv pool relu norm bench benchmark guest default ctuning ck anaconda conda forward backward
    kernel layer iteration unknown none null nil nan true false yes no any all anonymous nobody system device cpu memory
    mem float double half int char void bool auto empty invalid error name and or not is the an to of in on by for with
    has was linux windows x86_64 aarch64
    """.split()  # noqa: SIM905 (one word a line is too long to read)
)
"""Accounts and machines that are everywhere, and words of our own: replacing them would only spoil names."""
