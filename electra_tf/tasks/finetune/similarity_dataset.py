"""The data set of similarity: pairs of texts with scores, or pairs that belong together."""

import logging
from dataclasses import dataclass, fields

from electra_tf.config.errors import UserError, list_briefly
from electra_tf.data.tables import read_table
from electra_tf.tasks.finetune.data_options import DataOptions, TaskDataset, require_flags
from electra_tf.tasks.finetune.glue import GLUE_TASKS, read_glue
from electra_tf.tasks.finetune.similarity import SimilarityData
from electra_tf.tasks.finetune.text_examples import ID_COLUMNS, TextExamples, read_examples, target_range

logger = logging.getLogger(__name__)


@dataclass
class SimilarityDataset(TaskDataset):
    """A user's own pairs of texts, or those of STS-B: with a score each, or pairs that belong together."""

    name: str
    options: DataOptions
    task_data = SimilarityData

    def __post_init__(self):
        self.train, self.validation, self.test = splits = self._read_splits(self.options)
        for split in filter(None, splits):
            if (split.labels is None) != (self.train.labels is None):
                without, has = (self.train, split)[:: 1 if self.train.labels is None else -1]
                raise UserError(
                    f"{without.source} has no scores in {self.options.label_column!r}, and {has.source} has some; give "
                    "scores in all files, or in none"
                )
        if self.train.labels is None:
            logger.info("%s has no scores: a text learns to find its own among other pairs", self.train.source)

    def _read_splits(self, options: DataOptions) -> list[TextExamples | None]:
        """The training, dev and test split."""
        if options.data_dir is not None:
            for flag in fields(options):
                if flag.name != "data_dir" and getattr(options, flag.name) != flag.default:
                    raise UserError(
                        f"--{flag.name} has no effect with --data_dir, which is STS-B's; remove one of them"
                    )
            task = GLUE_TASKS["stsb"]
            self.columns = tuple(task.parquet_texts)
            return [read_glue(task, options.data_dir, split) for split in ("train", "validation")] + [None]
        require_flags(self.name, options, "train_file", "validation_file")
        self.columns = options.text_columns
        if len(self.columns) != 2:
            raise UserError(f"--text_columns {' '.join(self.columns)}: --task=similarity needs two columns")
        # Without the column of the default name, pairs have no scores; a column that was named must be there.
        may_lack = options.label_column == DataOptions.label_column
        tables = [path and read_table(path) for path in options.split_files]
        others = [name for name in tables[0].columns if name not in (*self.columns, *ID_COLUMNS)]
        if may_lack and options.label_column not in others and others:
            logger.warning(
                "warning: %s has no column %r, so its pairs are taken to belong together; if one of %s has scores, "
                "name it as --label_column",
                tables[0].source,
                options.label_column,
                list_briefly(others),
            )
        return [
            table and read_examples(table, self.columns, options.label_column, "regression", may_lack)
            for table in tables
        ]

    def settings(self, chosen: dict) -> dict:
        settings = {"kind": "similarity", "text_columns": list(self.columns)}
        settings["label_column"] = self.options.label_column
        if self.train.labels is None:
            return settings | {"is_contrastive": True}
        if len(set(self.train.labels)) == 1:
            raise UserError(
                f"{self.train.source} has the score {self.train.labels[0]} for all pairs; give different scores, or "
                f"for pairs that belong together remove the column {self.options.label_column!r}"
            )
        smallest, largest = target_range(self.train)
        return settings | {"is_contrastive": False, "min_value": smallest, "max_value": largest}
