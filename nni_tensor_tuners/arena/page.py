"""One HTML file, which needs no other, of what has been made of the papers' figures (`papers`)."""

import base64
import json
from html import escape

from .papers import FIGURES, MADE

STYLE = """
body { font-family: sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
figure { margin: 1rem 0 3rem; }
img { max-width: 49%; }
figcaption, p { line-height: 1.4; }
pre { overflow-x: auto; background: #f4f4f4; padding: .7rem; font-size: .8rem; }
table { border-collapse: collapse; margin: .5rem 0; }
caption { text-align: left; font-style: italic; padding: .3rem 0; }
th, td { border: 1px solid #ccc; padding: .2rem .6rem; text-align: left; }
"""


def page(folder):
    """The page of what is in a folder, as text; what has not been made is named."""
    parts, missing, paper = [], [], None
    for figure in sorted(FIGURES, key=lambda figure: figure.paper):
        made = [(folder / figure.name / command.folder, command) for command in figure.commands]
        made = [(place, command) for place, command in made if (place / MADE).is_file()]
        if not made:
            missing.append(f"<li>{escape(figure.paper)}, {escape(figure.title)}: tensor-tuners paper {figure.name}</li>")
            continue
        if figure.paper != paper:
            parts.append(f"<h2>{escape(paper := figure.paper)}</h2>")
        parts.append(_figure(figure, made))
    if missing:
        parts.append(f"<h2>Not on this page</h2><ul>{''.join(missing)}</ul>")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>The papers\' figures, made again</title>'
        f"<style>{STYLE}</style></head><body><h1>The papers' figures, made again</h1>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _figure(figure, made):
    parts = [f'<figure id="{figure.name}"><h3>{escape(figure.paper)}, {escape(figure.title)}</h3>']
    if figure.published:
        head, *rows = figure.published
        cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        parts.append(f"<table><caption>The paper's own numbers</caption><tr>{cells}</tr>{body}</table>")
    for place, command in made:
        for drawing in command.drawings:
            image = base64.b64encode((place / drawing).read_bytes()).decode()
            parts.append(f'<img alt="{escape(command.folder)}: {drawing}" src="data:image/png;base64,{image}">')
        described = json.loads((place / MADE).read_text(encoding="utf-8"))
        shell = escape(" ".join(["tensor-tuners", *described["command"]]))
        parts.append(f"<p><code>{shell}</code></p><pre>{escape(described['text'])}</pre>")
    parts.append(f"<figcaption>{escape(figure.caption)}</figcaption></figure>")
    return "\n".join(parts)
