"""The model card: metadata that the hub reads, and what is known of the model, as tables."""

import huggingface_hub
import pytest

from electra_tf.convert.hugging_face import hugging_face_networks
from electra_tf.convert.model_card import model_card

COLA = {"task": "cola", "metric": "matthews_correlation", "median": 0.5612, "sigma": 0.0123, "n": 5}
FACTS = {
    "data": ["a1b2"],
    "flops": {"paper": 1.4e18, "hardware": 1.6e18},
    "evaluation": {"step": 2, "masked_lm_accuracy": 0.25, "replaced_token_auc": None},
    "scores": [COLA, {"task": "glue", "metric": "mean", "median": 0.8, "sigma": None, "n": 1}],
}


def cards(model) -> list[tuple[str, huggingface_hub.ModelCardData]]:
    texts = [model_card(model, network) for network in hugging_face_networks(model)]
    return [(text, huggingface_hub.ModelCard(text).data) for text in texts]


def test_metadata_name_the_library_the_pipeline_and_the_scores_with_their_seeds(stored):
    (_, discriminator), (_, generator) = cards(stored(facts=FACTS))
    assert (discriminator.library_name, discriminator.pipeline_tag) == ("transformers", None)
    assert generator.pipeline_tag == "fill-mask"
    assert discriminator.tags == ["electra", "replaced-token-detection"]
    (result,) = discriminator.eval_results  # `glue` is no data set of the hub
    assert (result.dataset_type, result.dataset_config, result.dataset_split) == ("nyu-mll/glue", "cola", "validation")
    assert (result.metric_type, result.metric_value) == ("matthews_correlation", 0.5612)
    assert result.metric_name == "matthews_correlation, median of 5 seeds of fine-tuning"


@pytest.mark.parametrize(
    "row",
    [
        "| objective | electra |",
        "| steps | 3 |",
        "| FLOPs of pre-training, as the paper counts | 1.4e+18 |",
        "| FLOPs of pre-training, of the hardware | 1.6e+18 |",
        "| data set, SHA-256 | `a1b2` |",
        "## Evaluation on held-out text, step 2",
        "| masked_lm_accuracy | 0.25 |",
        "## Scores on the dev sets of several seeds of fine-tuning",
        "| cola | matthews_correlation | 0.5612 | 0.0123 | 5 |",
        "| glue | mean | 0.8 | - | 1 |",
        "| a capital sigma at the end of a word, which the training lowers to a final sigma | 12 | 11 | 0 |",
    ],
)
def test_the_text_has_what_is_known(stored, row):
    model = stored(facts=FACTS)
    assert row in cards(model)[0][0].splitlines()


def test_what_is_not_known_is_left_out(stored):
    text, data = cards(stored())[0]
    assert "FLOPs" not in text and "## Evaluation" not in text and "## Scores" not in text
    assert (data.eval_results, data.datasets, data.metrics) == (None, None, None)


def test_a_fine_tuned_model_names_its_data_and_how_to_load_it(stored_finetuned):
    facts = {"evaluation": {"step": 4, "accuracy": 0.75}, "init_from": "there/runs/tiny"}
    text, data = cards(stored_finetuned({"kind": "classification", "labels": ["0", "1"]}, "mrpc", facts))[0]
    assert (data.pipeline_tag, data.datasets) == ("text-classification", ["nyu-mll/glue"])
    assert "from transformers import AutoTokenizer, ElectraForSequenceClassification" in text
    assert text.splitlines().count("# electra_tf mrpc") == 1
    assert "| accuracy | 0.75 |" in text and "- The head was trained as one product." in text
    assert "| weights came from | `runs/tiny` |" in text


@pytest.mark.parametrize(
    ("columns", "texts"), [(["a"], "one text."), (["a", "b"], "a pair of texts."), ([], "one text or a pair of texts.")]
)
def test_a_fine_tuned_model_says_how_many_texts_it_takes(stored_finetuned, columns, texts):
    task = {"kind": "classification", "labels": ["0", "1"], "text_columns": columns}
    assert f"An ELECTRA encoder, fine-tuned to label {texts}" in cards(stored_finetuned(task))[0][0].splitlines()


def test_a_fine_tuned_models_result_is_its_own(stored_finetuned):
    """And not the median of several seeds, which stands in the text."""
    score = {"task": "mrpc", "metric": "accuracy", "median": 0.5, "sigma": 0.25, "n": 3}
    facts = {"evaluation": {"step": 4, "accuracy": 0.75}, "scores": [score]}
    text, data = cards(stored_finetuned({"kind": "classification", "labels": ["0", "1"]}, "mrpc", facts))[0]
    assert [(result.metric_name, result.metric_value) for result in data.eval_results] == [("accuracy", 0.75)]
    assert "| mrpc | accuracy | 0.5 | 0.25 | 3 |" in text
