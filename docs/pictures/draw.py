"""Draws the pictures of the pages: pipeline.svg and training_step.svg, into this folder.

python docs/pictures/draw.py
"""

from collections.abc import Sequence
from pathlib import Path

WIDTH = 720  # a page on a phone shows half of it, so the smallest text is 17

# By kind of box: fill and border, in light and in dark mode.
COLOURS = {
    "file": ("#f3f6fa", "#8c99a8", "#161b22", "#6e7b8b"),
    "network": ("#e3eefc", "#3b7dd8", "#12294a", "#5a9bf0"),
    "chosen": ("#fff0cf", "#b7791f", "#3d2c07", "#d29922"),
    "loss": ("#e6f4e6", "#3c8d40", "#10301a", "#4fae5a"),
}
STYLE = """
text { font-family: Helvetica, Arial, sans-serif; font-size: 17px; fill: #1f2328; text-anchor: middle }
.title { font-size: 20px; font-weight: bold }
.token { font-size: 18px }
.command { font-family: Menlo, Consolas, monospace; font-size: 17px }
.left { text-anchor: start }
.end { text-anchor: end }
.page { fill: #ffffff }
.line { fill: none; stroke: #57606a; stroke-width: 2; marker-end: url(#line) }
.both { marker-start: url(#line) }
.gradient { fill: none; stroke: #b02a8f; stroke-width: 3.5; marker-end: url(#gradient) }
.stopped { stroke-dasharray: 5 5 }
.cross { fill: none; stroke: #cf222e; stroke-width: 3.5 }
.around { fill: none; stroke: #8c99a8; stroke-width: 1.5; stroke-dasharray: 7 5 }
#line path { fill: #57606a }
#gradient path { fill: #b02a8f }
"""
DARK_STYLE = """
text { fill: #e6edf3 }
.page { fill: #0d1117 }
.line { stroke: #a5b0bc }
.gradient { stroke: #f08bd4 }
.cross { stroke: #ff6b66 }
#line path { fill: #a5b0bc }
#gradient path { fill: #f08bd4 }
"""


class Picture:
    """The elements of an SVG, in the order in which they are drawn."""

    def __init__(self, height: int, title: str):
        self.height, self.title = height, title
        self.elements: list[str] = []

    def text(self, x: float, y: float, text: str, kind: str = "") -> None:
        """Writes a line of text, centred at x (with kind "left": from x), on the baseline y."""
        self.elements.append(f'<text x="{x:g}" y="{y:g}" class="{kind}">{text}</text>')

    def box(self, x: float, y: float, width: float, height: float, kind: str, title: str, *lines: str) -> None:
        """Draws a box with a bold title and further lines below it, all centred."""
        self.rectangle(x, y, width, height, kind)
        first = y + height / 2 + 7 - 10.5 * len(lines)
        self.text(x + width / 2, first, title, "title")
        for number, line in enumerate(lines, start=1):
            self.text(x + width / 2, first + 21 * number, line)

    def cell(self, x: float, y: float, width: float, height: float, kind: str, token: str) -> None:
        """Draws a token in a box."""
        self.rectangle(x, y, width, height, kind)
        self.text(x + width / 2, y + height / 2 + 6, token, "token")

    def path(self, points: Sequence[tuple[float, float]], kind: str = "line") -> None:
        """Draws a line through points, with an arrow's head if its kind has one."""
        self.elements.append(f'<path d="M{" L".join(f"{x:g} {y:g}" for x, y in points)}" class="{kind}"/>')

    def cross(self, x: float, y: float) -> None:
        """Strikes a line out."""
        self.path([(x - 8, y - 8), (x + 8, y + 8)], "cross")
        self.path([(x - 8, y + 8), (x + 8, y - 8)], "cross")

    def rectangle(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        """Draws a box without text."""
        place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
        self.elements.append(f'<rect {place} rx="8" class="{kind}"/>')

    def svg(self) -> str:
        """The file's text. It has a background of its own, so that it is legible on any page."""
        light = "".join(f".{kind} {{ fill: {c[0]}; stroke: {c[1]}; stroke-width: 2 }}\n" for kind, c in COLOURS.items())
        dark = "".join(f".{kind} {{ fill: {c[2]}; stroke: {c[3]} }}\n" for kind, c in COLOURS.items())
        heads = "".join(
            f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="{size}" markerHeight="{size}" '
            'orient="auto-start-reverse" markerUnits="userSpaceOnUse"><path d="M0 0 L10 5 L0 10 z"/></marker>\n'
            for name, size in (("line", 13), ("gradient", 16))
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" width="{WIDTH}" '
            f'height="{self.height}" role="img">\n<title>{self.title}</title>\n<style>{STYLE}{light}'
            f"@media (prefers-color-scheme: dark) {{{DARK_STYLE}{dark}}}\n</style>\n<defs>\n{heads}</defs>\n"
            f'<rect width="{WIDTH}" height="{self.height}" rx="10" class="page"/>\n'
            + "\n".join(self.elements)
            + "\n</svg>\n"
        )


def pipeline() -> str:
    """From text to models: a box for what is on the disk, an arrow for each command."""
    picture = Picture(440, "The pipeline: from text through TFRecords and pre-training to models in four formats")
    picture.box(16, 16, 152, 72, "file", "text", "dumps, books")
    picture.box(312, 16, 162, 72, "file", "vocabulary", "of word pieces")
    picture.box(538, 16, 166, 72, "file", "TFRecords", "of examples")
    picture.path([(168, 52), (310, 52)])
    picture.text(237, 42, "build-vocab", "command")
    picture.path([(474, 52), (536, 52)])
    picture.path([(92, 88), (92, 124), (580, 124), (580, 90)])
    picture.text(237, 115, "build-data", "command")

    picture.rectangle(16, 166, 688, 106, "around")
    picture.box(432, 183, 256, 72, "network", "pre-trained", "run with its checkpoints")
    picture.box(32, 183, 256, 72, "network", "fine-tuned", "GLUE, SQuAD, your task")
    picture.path([(650, 88), (650, 181)])
    picture.text(640, 148, "pretrain", "command end")
    picture.path([(432, 219), (290, 219)])
    picture.text(362, 209, "finetune", "command")

    formats = (
        ("export", "line", "SavedModel", "for TF Serving"),
        ("convert", "line both", "Hugging Face", "folder"),
        ("convert", "line both", "TF1 checkpoint", "of the authors' code"),
    )
    for number, (command, arrow, title, line) in enumerate(formats):
        x = 16 + 236 * number
        picture.box(x, 326, 216, 72, "file", title, line)
        picture.path([(x + 100, 276 if "both" in arrow else 272), (x + 100, 324)], arrow)
        picture.text(x + 112, 304, command, "command left")
    picture.text(WIDTH / 2, 426, "on the arrows: the commands, electra-tf NAME")
    return picture.svg()


ORIGINAL = ("the", "chef", "cooked", "the", "meal")
SAMPLES = {0: "the", 2: "ate"}  # by masked position: the first is the original token again


def training_step() -> str:
    """One step of ELECTRA with an example: data from top to bottom, gradients from right to left."""
    corrupted = [SAMPLES.get(position, token) for position, token in enumerate(ORIGINAL)]
    masked = ["[MASK]" if position in SAMPLES else token for position, token in enumerate(ORIGINAL)]
    answers = ["original" if token == old else "replaced" for token, old in zip(corrupted, ORIGINAL, strict=True)]
    picture = Picture(640, "One training step of ELECTRA: masking, generator, sampling, discriminator, two losses")
    columns = [76 + 88 * position for position in range(len(ORIGINAL))]
    rows = (
        (16, ORIGINAL, (), "a sentence"),
        (82, masked, SAMPLES, "some tokens masked"),
        (308, corrupted, SAMPLES, "samples written in"),
        (480, answers, (answers.index("replaced"),), "the right answers"),
    )
    for y, tokens, chosen, caption in rows:
        for position, (x, token) in enumerate(zip(columns, tokens, strict=True)):
            picture.cell(x, y, 82, 40, "chosen" if position in chosen else "file", token)
        picture.text(532, y + 26, caption, "left")
    for x in columns:
        for top, bottom in ((56, 80), (122, 146), (348, 372), (454, 478)):
            picture.path([(x + 41, top), (x + 41, bottom)])

    picture.box(76, 148, 434, 80, "network", "generator", "a small masked language model")
    picture.box(76, 374, 434, 80, "network", "discriminator", "the encoder that is fine-tuned and exported")
    picture.box(566, 148, 138, 80, "loss", "masked LM", "mean over the", "masked tokens")
    picture.box(566, 374, 138, 80, "loss", "detection", "mean over", "all tokens")
    for position in SAMPLES:
        x = columns[position] + 41
        picture.path([(x, 228), (x, 306)], "line stopped")
        picture.cross(x, 266)
        picture.text(x + 13, 272, "sampled", "left")
    picture.text(394, 272, "no gradient through a sample", "left")

    picture.rectangle(16, 148, 36, 306, "network")
    picture.elements.append('<text transform="translate(40 301) rotate(-90)" class="title">shared embeddings</text>')
    for y in (148, 374):
        picture.path([(510, y + 24), (564, y + 24)])
        picture.path([(566, y + 56), (513, y + 56)], "gradient")
        picture.path([(76, y + 40), (55, y + 40)], "gradient")

    picture.box(16, 542, 688, 44, "loss", "loss = masked LM + λ · replaced-token detection,  λ = 50")
    picture.path([(120, 614), (170, 614)])
    picture.text(180, 620, "data", "left")
    picture.path([(260, 614), (310, 614)], "gradient")
    picture.text(320, 620, "gradient", "left")
    picture.path([(430, 614), (480, 614)], "line stopped")
    picture.cross(452, 614)
    picture.text(490, 620, "no gradient", "left")
    return picture.svg()


PICTURES = {"pipeline.svg": pipeline, "training_step.svg": training_step}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (Path(__file__).parent / name).write_text(draw(), encoding="utf-8")
