"""Whether a vocabulary fits the normalization of its text.

electra-tf build-vocab writes `VOCABULARY.json` beside a vocabulary, with the settings that it was trained with. A
vocabulary without this file fits if its tokens can occur in normalized text.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from electra_tf.config.errors import UserError
from electra_tf.text.scripts import without_marks
from electra_tf.text.vocabulary import (
    IDEOGRAPHS,
    SPECIAL_TOKENS,
    StoredTokenizer,
    TextSettings,
    Vocabulary,
    kind_of_vocabulary,
    tokens_of,
)

# Of a vocabulary's tokens, the fraction that may be impossible. BERT's English vocabularies have none.
MAX_IMPOSSIBLE_FRACTION = 0.05


def settings_file(vocab_file: str) -> str:
    """The file beside a vocabulary that holds its settings and how well it fits a text."""
    return f"{vocab_file}.json"


def chosen_settings(
    vocabulary: Vocabulary, path: str, read: Callable[[str], bytes | None], flags: Mapping[str, Any]
) -> TextSettings:
    """The settings with which a data set's text is normalized.

    Args:
        path, read: see `stated_settings`.
        flags: the settings that the user gives; None: not given. `program_to_run` compares `segment`.
    Raises: UserError: a flag contradicts the vocabulary's own settings; see also `stated_settings` and
        `require_possible_tokens`.
    """
    given = {name: value for name, value in flags.items() if value is not None and name != "segment"}
    own = stated_settings(vocabulary, path, read)
    if own is None:
        chosen = TextSettings.of_flags(flags)
        flag_of = {name: f"--no-{name}" for name in chosen._fields}
        flag_of["isolate_cjk"] += " and text that a segmenter has cut into words"
        require_possible_tokens(StoredTokenizer(vocabulary.content, chosen), path, flag_of)
        return chosen
    for name, value in given.items():
        # Without lower-casing, no accents are stripped.
        if value != getattr(own, name) and (own.lower_case or name != "strip_accents"):
            flag = f"--{name}={value}" if name == "unicode" else f"--{'' if value else 'no-'}{name}"
            raise UserError(
                f"{flag}: the vocabulary {path} was built with {name} {getattr(own, name)}; remove it or give "
                "another vocabulary"
            )
    return own


def stated_settings(vocabulary: Vocabulary, path: str, read: Callable[[str], bytes | None]) -> TextSettings | None:
    """The settings that the vocabulary at `path` was trained with; None if it does not state them.

    Args:
        read: returns the content of a file, or None if there is none.
    Raises: UserError: the file beside the vocabulary belongs to another one.
    """
    if vocabulary.text_settings is not None or (content := read(settings_file(path))) is None:
        return vocabulary.text_settings
    stated = json.loads(content)
    if stated.get("vocab_sha256") != vocabulary.sha256:
        raise UserError(
            f"{settings_file(path)} describes another vocabulary than {path}; remove it, or give the vocabulary that "
            "electra-tf build-vocab wrote"
        )
    return TextSettings.from_mapping(stated)


def require_possible_tokens(tokenizer: StoredTokenizer, path: str, flag_of: Mapping[str, str]) -> None:
    """Raises: UserError: too many tokens of the vocabulary at `path` never occur in normalized text.

    `flag_of` has the flag that turns a setting off, by the setting's name; not every setting has one.
    """
    settings = tokenizer.settings
    if kind_of_vocabulary(tokenizer.content).text_settings is not None:
        return
    tokens = tokens_of(tokenizer.content, path)
    impossible = _impossible(tokens, settings)
    if len(impossible) <= MAX_IMPOSSIBLE_FRACTION * len(tokens):
        return
    # Of two flags that help equally, the one that changes less.
    helps = {
        name: len(_impossible(tokens, TextSettings.from_mapping({**settings._asdict(), name: False})))
        for name in ("strip_accents", "isolate_cjk", "lower_case")
    }
    best = min(helps, key=helps.__getitem__)
    remedy = f"{flag_of[best]}, or another vocabulary" if best in flag_of else "another vocabulary"
    raise UserError(
        f"{path}: {len(impossible)} of {len(tokens)} tokens, for example {impossible[0]}, never occur in text with "
        f"{best} true; give {remedy}"
    )


def _impossible(tokens: Sequence[str], settings: TextSettings) -> list[str]:
    words = (token for token in tokens if token not in SPECIAL_TOKENS and not token.startswith("[unused"))
    return [token for token in words if not _can_occur(token, settings)]


def _can_occur(token: str, settings: TextSettings) -> bool:
    piece = token.removeprefix("##") or token
    if settings.lower_case and piece != piece.lower():
        return False
    if piece.isascii():  # as most are
        return True
    if settings.strips_accents and piece != without_marks(piece):
        return False
    # Chinese BERT's vocabularies have "##" before each ideograph, which never occurs and does no harm.
    return not (settings.isolate_cjk and len(piece) > 1 and re.search(f"[{IDEOGRAPHS}]", piece))
