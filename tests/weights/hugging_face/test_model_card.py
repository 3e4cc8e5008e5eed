"""The model card: metadata that the hub reads, how to load the model, its sizes, data and settings."""

import huggingface_hub
import pytest

from electra_tf.weights.hugging_face.writer import hugging_face_networks, model_card

FACTS = {
    "data": ["a1b2"],
    "init_from": "there/runs/tiny",
    "configuration": {"train": {"batch_size": 6}, "data": {"max_seq_length": 13}, "optimizer": {"learning_rate": 5e-4}},
}


def cards(model) -> list[huggingface_hub.ModelCard]:
    return [model_card(model, network) for network in hugging_face_networks(model)]


def test_metadata_name_the_library_and_the_pipeline(stored):
    discriminator, generator = (huggingface_hub.ModelCard(str(card)).data for card in cards(stored(facts=FACTS)))
    assert (discriminator.library_name, discriminator.pipeline_tag) == ("transformers", None)
    assert (generator.tags, generator.pipeline_tag) == (["electra"], "fill-mask")


@pytest.mark.parametrize(
    "line",
    [
        "# electra_tf electra discriminator",
        'model = ElectraForPreTraining.from_pretrained("FOLDER")',
        "| parameters | 3,093 |",
        "| `hidden_size` | 16 |",
        "| vocabulary | 47 word pieces, uncased |",
        "| data set, SHA-256 | `a1b2` |",
        "| initial weights | runs/tiny |",
        "| steps | 3 |",
        "| `train.batch_size` | 6 |",
        "| `optimizer.learning_rate` | 0.0005 |",
    ],
)
def test_the_text_has_sizes_data_and_settings(stored, line):
    assert line in str(cards(stored(facts=FACTS))[0]).splitlines()


def test_a_model_without_facts_has_no_rows_for_them(stored):
    text = str(cards(stored())[0])
    assert "SHA-256" not in text and "initial weights" not in text and "batch_size" not in text


def test_a_fine_tuned_model_has_its_task_and_notes(stored_finetuned):
    (card,) = cards(stored_finetuned({"kind": "classification", "labels": ["0", "1"]}, "mrpc"))
    lines = str(card).splitlines()
    assert card.data.pipeline_tag == "text-classification"
    assert "from transformers import AutoTokenizer, ElectraForSequenceClassification" in lines
    assert "# electra_tf mrpc" in lines and any(line.startswith("- The head was trained as one") for line in lines)
