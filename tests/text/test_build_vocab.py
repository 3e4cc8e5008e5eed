import os
import subprocess
import sys
from pathlib import Path

import pytest

from data_prep.settings import VocabularySettings
from data_prep.vocabulary import build_vocabulary
from electra_tf.config.errors import UserError

ROOT = Path(__file__).parents[2]


def test_an_output_that_exists_is_a_user_error_and_stays(tmp_path):
    (tmp_path / "a.txt").write_text("the lost world\n")
    settings = VocabularySettings(inputs=(f"{tmp_path}/*.txt",), output=f"{tmp_path}/a.txt")
    with pytest.raises(UserError, match="a.txt exists"):
        build_vocabulary(settings)
    assert (tmp_path / "a.txt").read_text() == "the lost world\n"


@pytest.mark.slow
@pytest.mark.parametrize("number", ["1", "2"])
def test_the_vocabulary_of_the_sample_does_not_depend_on_hash_seed_and_threads(tmp_path, number):
    flags = ["--input=sample/wikipedia/wiki_*", "--input=sample/novel/*.txt", "--vocab_size=4000"]
    flags += ["--max_num_characters=100", f"--output={tmp_path / 'vocab.txt'}"]
    environment = {**os.environ, "PYTHONHASHSEED": number, "RAYON_NUM_THREADS": number}
    subprocess.run([sys.executable, "-m", "electra_tf", "build-vocab", *flags], cwd=ROOT, env=environment, check=True)
    assert (tmp_path / "vocab.txt").read_bytes() == (ROOT / "sample" / "vocab.txt").read_bytes()
