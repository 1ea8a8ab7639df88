"""A table as a picture, in the looks of those of `baton prove` (crates/baton-prove/src/proof/matrix.rs). Pure but for its
style, which is that of theirs: no clock, no other files."""

from html import escape
from pathlib import Path

# The width of the names and of a column, and heights.
NAMES, COLUMN, HEAD, ROW, APART, FOOT = 216, 120, 112, 30, 14, 44
# Letters of a head in a line.
LETTERS = 14

# An opaque card, light or dark as the reader has it. Colour never stands alone: what is bad is bold, too.
STYLE = "\n" + (Path(__file__).parent.parent / "crates/baton-prove/src/proof/matrix/style.css").read_text()


def matrix(title, heads, rows, foot):
    """An SVG file. A row: its name, a text and whether it is good (None: neither) for each head, and whether it is one of ours."""
    others, ours = [row for row in rows if not row[2]], [row for row in rows if row[2]]
    gap = APART if others and ours else 0
    width, height = NAMES + COLUMN * len(heads) + 16, HEAD + ROW * len(rows) + gap + FOOT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title><desc>{escape(description(heads, rows))}</desc>",
        f"<style>{STYLE}</style>",
        rect("card", 0.5, 0.5, width - 1, height - 1),
        text("title", "start", 16, 28, title),
    ]
    for at, head in enumerate(heads):
        for line, words in enumerate(reversed(lines(head))):
            parts.append(text("strong", "middle", middle(at), HEAD - 14 - 16 * line, words))
    parts.append(f'<line class="rule" x1="16" y1="{HEAD - 6}" x2="{width - 16}" y2="{HEAD - 6}"/>')
    y = HEAD
    for row in others:
        parts += drawn(row, y)
        y += ROW
    y += gap
    if ours:
        parts.append(rect("ours", 8, y - 3, width - 16, ROW * len(ours) + 6))
    for row in ours:
        parts += drawn(row, y)
        y += ROW
    low = height - 16
    parts += [rect("good", 16, low - 12, 14, 14), text("dim", "start", 36, low, "nothing lost")]
    parts += [rect("bad", 126, low - 12, 14, 14), text("dim", "start", 146, low, "lost, or still there")]
    parts += [text("dim", "end", width - 16, low, foot), "</svg>"]
    return "\n".join(parts) + "\n"


def drawn(row, y):
    name, cells, is_ours = row
    parts = [text("strong" if is_ours else "label", "start", 16, y + 20, name)]
    for at, (words, is_good) in enumerate(cells):
        form, letters = {None: ("plain", "label"), True: ("good", "label"), False: ("bad", "lost")}[is_good]
        parts.append(rect(form, middle(at) - COLUMN / 2 + 2, y + 2, COLUMN - 4, ROW - 4))
        parts.append(text(letters, "middle", middle(at), y + 20, words))
    return parts


def middle(column):
    return NAMES + COLUMN * column + COLUMN / 2


def rect(form, x, y, width, height):
    return f'<rect class="{form}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"/>'


def text(form, anchor, x, y, words):
    end = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text class="{form}" x="{x:g}" y="{y:g}"{end}>{escape(words)}</text>'


def lines(head):
    """A head in lines of so many letters."""
    found = []
    for word in head.split():
        if found and len(found[-1]) + 1 + len(word) <= LETTERS:
            found[-1] += f" {word}"
        else:
            found.append(word)
    return found


def description(heads, rows):
    """The picture in words: a sentence a row."""
    return " ".join(f"{name}: " + "; ".join(f"{head}: {cell[0]}" for head, cell in zip(heads, cells)) + "." for name, cells, _ in rows)
