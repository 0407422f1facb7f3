# SPDX-License-Identifier: Apache-2.0
"""Figures and tables as Markdown."""

import math

NONE = "–"


def number(value, digits=3):
    """With so many digits that count; whole numbers, and the whole part of others, in full."""
    if value is None:
        return NONE
    if value == 0 or isinstance(value, int):
        return f"{value:,.0f}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def times(value):
    """A ratio."""
    return NONE if value is None else f"{value:.3f}" if value < 1 else number(value)


def percent(value):
    return NONE if value is None else f"{100 * value:.0f} %"


def change(value):
    """A ratio as what it changes: 0.6 is -40.0 %."""
    return NONE if value is None else f"{100 * (value - 1):+.1f} %".replace("-", "−")


def table(heads, rows, words=1):
    """The first columns are words, and the others figures."""
    def line(cells):
        return "| " + " | ".join(str(cell) for cell in cells) + " |"

    rule = "|" + "---|" * words + "---:|" * (len(heads) - words)
    return "\n".join([line(heads), rule, *map(line, rows)])


def listed(words):
    """a, b and c"""
    words = list(words)
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
