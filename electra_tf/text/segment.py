"""Words of a language without spaces: a program of the user's puts spaces between them.

The program reads lines in UTF-8 and writes as many, as `mecab -Owakati` does. Each line is cut by itself, so that any
division of a text into runs of the program gives the same words.
"""

import shlex
import subprocess
from collections.abc import Sequence

from electra_tf.config.errors import UserError, first_line

ALREADY_SEGMENTED = "none"  # given in place of a program: the text comes with spaces between its words


class SegmentFault(UserError):
    """A text for which the program does not write one line; `index` is its place among the texts."""

    def __init__(self, message: str, index: int = 0):
        super().__init__(message)
        self.index = index


def program_to_run(stated: str, given: str | None) -> str:
    """The program that cuts a text into words; "" if none does.

    A file that states a program is never reason enough to run it: the user gives it, too.

    Args:
        stated: `TextSettings.segment` of the tokenizer.
        given: the user's word, the same command or `none`; None without one.
    Raises: UserError: the user gives another one, or nothing where a program is stated.
    """
    if given == ALREADY_SEGMENTED:
        return ""
    if (given or "") == stated:
        return stated
    place = "" if given is None else f"segment={given}: "
    if not stated:
        raise UserError(f"{place}the vocabulary's text was not cut into words by a program; remove it")
    raise UserError(
        f"{place}the vocabulary's text was cut into words by segment={stated!r}; give this to run the program here, or "
        f"segment={ALREADY_SEGMENTED} for text that it has cut"
    )


def segmented(command: str, texts: Sequence[str]) -> Sequence[str]:
    """Texts with spaces between their words, by one run of a program; without a command the texts as they are.

    The program gets spaces for the line ends within a text, and no blank text.

    Raises: UserError: the program does not run, or fails. SegmentFault: it does not write one line for each text.
    """
    if not command:
        return texts
    # MeCab reads a line up to the null character, which BERT deletes.
    lines = [" ".join(text.replace("\0", "").splitlines()).strip() for text in texts]
    indices = [index for index, line in enumerate(lines) if line]
    sent = [lines[index] for index in indices]
    written, message = _run(command, sent)
    if len(written) == len(sent):
        for index, line in zip(indices, written, strict=True):
            lines[index] = line.strip()
        return lines
    first, end = 0, len(sent)  # the first fault is between them
    while end - first > 1:
        middle = (first + end) // 2
        some, warning = _run(command, sent[first:middle])
        is_before = len(some) != middle - first
        first, end, message = (first, middle, warning) if is_before else (middle, end, message)
    raise SegmentFault(f"segment={command}: not one line for the text {sent[first]!r:.80}{message}", indices[first])


def _run(command: str, lines: Sequence[str]) -> tuple[list[str], str]:
    """The lines that a program writes, and the end of its messages, for ours."""
    if not lines:
        return [], ""
    text = "".join(f"{line}\n" for line in lines).encode()
    try:
        # In a group of its own, an interrupt at the terminal does not end the program before its caller.
        done = subprocess.run(shlex.split(command), input=text, capture_output=True, process_group=0)
        *written, rest = done.stdout.decode().split("\n")
    except (OSError, ValueError, IndexError) as error:  # no program, quotes that do not match, another encoding
        raise UserError(f"segment={command}: {first_line(error)}; give a program that writes UTF-8") from None
    message = "".join(f": {line}" for line in done.stderr.decode(errors="replace").strip().splitlines()[-1:])
    if done.returncode:
        raise UserError(f"segment={command}: the program ended with status {done.returncode}{message}")
    return [*written, *[rest] * bool(rest)], message
