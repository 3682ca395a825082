"""What the build adds to Sphinx: formulas as MathML, and docstrings, which are Markdown, as autodoc wants them."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

CODE = re.compile(r"(`[^`]+`)")
FIELD = re.compile(r"^(\s*(?::[\w ]+(?:\\?\*)*[\w ]*:)?\s*)(.*)$")
BULLET = re.compile(r"^\s*[*-] ")


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    # after napoleon, which turns "Args:" into fields at priority 500
    app.connect("autodoc-process-docstring", _docstring, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(convert(node.astext(), display="inline"))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="formula">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def _docstring(app: Sphinx, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:
    """Markdown to reStructuredText, line by line, as far as docstrings use it: code, bullets, examples."""
    done: list[str] = []
    example = False
    for line in lines:
        example = bool(line.strip()) and (example or line.lstrip().startswith(">>>"))
        if example:
            if line.lstrip().startswith(">>>") and done and done[-1].strip() and not _in_example(done):
                done.append("")
            done.append(line)
            continue
        if BULLET.match(line) and done and done[-1].strip() and not done[-1].startswith((" ", "*", "-")):
            done.append("")
        done.append(_line(line))
    lines[:] = done


def _in_example(done: list[str]) -> bool:
    start = len(done) - next((i for i, line in enumerate(reversed(done)) if not line.strip()), len(done))
    return done[start].lstrip().startswith(">>>")


def _line(line: str) -> str:
    prefix, text = FIELD.match(line).groups()  # type: ignore[union-attr]
    bullet = BULLET.match(text)
    if bullet:
        prefix, text = prefix + bullet[0], text[bullet.end() :]
    parts = CODE.split(text)
    for i, part in enumerate(parts):
        if i % 2 == 0:
            parts[i] = re.sub(r"([\\*_|`])", r"\\\1", part)
            continue
        before, after = parts[i - 1][-1:], parts[i + 1][:1]
        parts[i] = f"{_glue(before)}`{part}`{_glue(after)}"
    return prefix + "".join(parts)


def _glue(beside: str) -> str:
    """Code that touches a letter needs an escaped space between the two."""
    return r"\ " if beside.isalnum() else ""
