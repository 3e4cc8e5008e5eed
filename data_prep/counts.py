"""What a build counts, of a work unit or of the whole: totals that add up in any order."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from data_prep.hygiene import HygieneCounts
from data_prep.readers.documents import ReadReport


@dataclass
class Counts:
    """Totals of phase 1, before duplicates are dropped.

    Attributes:
        num_bytes: of the input files, as they lie on the disk.
        num_documents_without_tokens: what was left of them the tokenizer drops.
        num_tokens_read: word pieces, without [CLS] and [SEP]; `num_unknown_tokens` of them are [UNK].
    """

    num_bytes: int = 0
    num_documents_without_tokens: int = 0
    num_tokens_read: int = 0
    num_unknown_tokens: int = 0
    reading: ReadReport = field(default_factory=ReadReport)
    hygiene: HygieneCounts = field(default_factory=HygieneCounts)

    def add(self, other: "Counts") -> None:
        """Adds `other`, field by field."""
        for name in ("num_bytes", "num_documents_without_tokens", "num_tokens_read", "num_unknown_tokens"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for reason, number in other.reading.num_documents_skipped.items():
            skipped = self.reading.num_documents_skipped
            skipped[reason] = skipped.get(reason, 0) + number
        self.reading.num_documents_cut += other.reading.num_documents_cut
        self.reading.truncations += other.reading.truncations
        for hygiene_field in dataclasses.fields(HygieneCounts):
            total = getattr(self.hygiene, hygiene_field.name) + getattr(other.hygiene, hygiene_field.name)
            setattr(self.hygiene, hygiene_field.name, total)

    def to_json(self) -> dict[str, Any]:
        """What `from_json` takes."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Counts":
        """Reads what `to_json` gave."""
        return cls(
            **{**fields, "reading": ReadReport(**fields["reading"]), "hygiene": HygieneCounts(**fields["hygiene"])}
        )
