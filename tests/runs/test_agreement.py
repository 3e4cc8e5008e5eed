"""What shapes do not tell of a source and of the run that takes its weights."""

import json

import pytest

from electra_tf.config.errors import UserError
from electra_tf.config.loader import config_to_yaml
from electra_tf.config.schema import EncoderConfig
from electra_tf.runs.agreement import Known, known_of_run, require_agreement
from electra_tf.runs.directory import RunDirectory

SIZES = EncoderConfig(vocab_size=8, embedding_size=6, hidden_size=12, num_layers=2, num_heads=3, intermediate_size=10)
GENERATOR = SIZES.model_copy(update={"num_heads": 2})
BOTH = {"encoder": SIZES, "objective.generator": GENERATOR}


def changed(sizes: EncoderConfig, **changes) -> EncoderConfig:
    return sizes.model_copy(update=changes)


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        (
            {"encoder": changed(SIZES, num_heads=4)},
            "num_heads of its encoder is 4, encoder.num_heads is 3; set it to 4",
        ),
        (
            {"objective.generator": changed(GENERATOR, num_heads=1)},
            "num_heads of its generator is 1, objective.generator.num_heads is 2; set it to 1",
        ),
        (
            {"encoder": changed(SIZES, layer_norm_epsilon=1e-6)},
            "layer_norm_epsilon of its encoder is 1e-06, encoder.layer_norm_epsilon is 1e-12; set it to 1e-06",
        ),
        (
            {"objective.generator": changed(GENERATOR, layer_norm_epsilon=1e-5)},
            "layer_norm_epsilon of its generator is 1e-05, encoder.layer_norm_epsilon is 1e-12; set it to 1e-05",
        ),
    ],
)
def test_settings_that_change_what_is_computed_must_agree(theirs, message):
    with pytest.raises(UserError, match=f"^there: {message}$"):
        require_agreement("there", Known(theirs), Known(BOTH))


def test_tokens_must_be_the_same():
    with pytest.raises(UserError, match="^there has another vocabulary than the data; build the data with that of"):
        require_agreement("there", Known({}, (b"a", b"b")), Known({}, (b"a", b"c")))


@pytest.mark.parametrize(
    ("theirs", "text"), [(True, "lower-cased text, the data is cased"), (False, "cased text, the")]
)
def test_casing_must_be_the_same(theirs, text):
    with pytest.raises(UserError, match=f"^there was trained on {text}"):
        require_agreement("there", Known({}, None, theirs), Known({}, None, not theirs))


@pytest.mark.parametrize("theirs", [True, False])
def test_accents_must_be_treated_the_same_in_lower_cased_text(theirs):
    with pytest.raises(UserError, match="^there was trained on text with.* accents, the data is with"):
        require_agreement("there", Known({}, None, True, theirs), Known({}, None, True, not theirs))
    require_agreement("there", Known({}, None, False, theirs), Known({}, None, False, not theirs))


@pytest.mark.parametrize("known", [Known({}), Known(BOTH), Known({}, (b"a",)), Known({}, None, True)])
def test_what_one_side_does_not_know_is_not_compared(known):
    require_agreement("there", known, Known({}))
    require_agreement("there", Known({}), known)
    require_agreement("there", known, known)


def test_a_run_knows_its_networks_and_its_text(tiny_config, tmp_path):
    run, config = RunDirectory(tmp_path), tiny_config()
    run.adopt_config(config, is_started=False)
    run.adopt_tokenizer(b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\r\nw\n", False, False, is_started=False)
    known = known_of_run(run)
    assert (known.networks["encoder"], known.networks["objective.generator"].num_heads) == (config.encoder, 3)
    assert (known.tokens[-1], known.lower_case, known.strip_accents) == (b"w", False, False)


def test_of_an_objective_that_is_not_loaded_the_text_is_known_alone(tiny_config, tmp_path, caplog):
    run = RunDirectory(tmp_path)
    text = config_to_yaml(tiny_config()).replace("name: electra\n", "name: of_a_module\n")
    (tmp_path / "config.yaml").write_text(text)
    (tmp_path / "tokenizer_settings.json").write_text(json.dumps({"lower_case": True, "strip_accents": True}))
    assert known_of_run(run) == Known({}, None, True, True)
    assert "are not compared: " in caplog.text
