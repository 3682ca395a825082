"""A bar chart of importances as SVG: nothing but text, so it opens anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

BAR, GAP, LEFT, WIDTH = 22, 10, 240, 640
COLOUR = "#0072B2"


def importance_svg(importances: Mapping[str, float], title: str) -> str:
    """One bar per field, the largest first; where there are none, a picture that says so."""
    top = 44
    height = top + max(1, len(importances)) * (BAR + GAP) + GAP
    bars = [_bar(name, share, top + index * (BAR + GAP)) for index, (name, share) in enumerate(_by_size(importances))]
    if not bars:
        bars = [f'<text x="16" y="{top + 16}">too few trials, or all scores alike: no importances</text>']
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'role="img" font-family="system-ui, sans-serif" font-size="13">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
            f'<text x="16" y="26" font-size="15" font-weight="600">{escape(title)}</text>',
            *bars,
            "</svg>\n",
        ]
    )


def _by_size(importances: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(importances.items(), key=lambda pair: (-pair[1], pair[0]))


def _bar(name: str, share: float, top: int) -> str:
    length = max(1.0, share * (WIDTH - LEFT - 80))
    middle = top + BAR * 0.7
    return (
        f'<text x="{LEFT - 10}" y="{middle:.1f}" text-anchor="end">{escape(name)}</text>'
        f'<rect x="{LEFT}" y="{top}" width="{length:.1f}" height="{BAR}" fill="{COLOUR}"/>'
        f'<text x="{LEFT + length + 6:.1f}" y="{middle:.1f}">{share:.0%}</text>'
    )
