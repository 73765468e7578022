"""The frame of every page: one HTML file without script that fetches nothing. Jinja2 fills it, autoescaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from mio2trace.outgoing import visible

LIMIT = 150_000
"""Bytes of a page."""


def fitted(attempts: Iterable[Mapping[str, Any]]) -> str:
    """The page of the first attempt that is small enough, else of the last; each says what ``page.html.j2`` asks for:
    ``title``, ``kicker``, ``generator``, ``footer`` and ``sections`` with their parts (`mio2trace.answer.tables.part`).
    """
    template, style = _frame()
    text = ""
    for page in attempts:
        text = template.render(page=page, style=style)
        if len(text.encode("utf-8", "replace")) <= LIMIT:
            break
    return text


@cache
def _frame() -> tuple[Template, Markup]:
    """The template and its style. To compile it takes longer than to fill it."""
    here = files("mio2trace.answer")
    frame = Environment(autoescape=True, undefined=StrictUndefined, finalize=_visible, trim_blocks=True)
    style = Markup(here.joinpath("page.css").read_text("utf-8").strip())  # noqa: S704 - our own file
    return frame.from_string(here.joinpath("page.html.j2").read_text("utf-8")), style


def _visible(value: Any) -> Any:
    """What is text of others neither steers nor breaks anything; our own markup stays."""
    return visible(value) if type(value) is str else value
