"""README.md of a folder for Hugging Face: the model card."""

from collections.abc import Iterator

from huggingface_hub import EvalResult, ModelCardData

from electra_tf.convert.hugging_face import Network
from electra_tf.convert.stored_model import StoredModel
from electra_tf.tasks.finetune.glue import GLUE_TASKS

_SQUAD = {"squad_v1": "rajpurkar/squad", "squad_v2": "rajpurkar/squad_v2"}
_ONE_OR_TWO = "one text or a pair of texts"
_DESCRIPTIONS = {
    "ElectraForPreTraining": "An ELECTRA discriminator: it tells for each token whether it was replaced.",
    "ElectraForMaskedLM": "A masked language model in ELECTRA's classes: it predicts the tokens behind [MASK].",
    "BertForMaskedLM": "A masked language model in BERT's classes: it predicts the tokens behind [MASK].",
    "ElectraModel": "An ELECTRA encoder without a head: a vector for each token.",
    "ElectraForSequenceClassification": f"An ELECTRA encoder, fine-tuned to label {_ONE_OR_TWO}.",
    "ElectraForTokenClassification": "An ELECTRA encoder, fine-tuned to label each word.",
    "ElectraForQuestionAnswering": "An ELECTRA encoder, fine-tuned to find the answer to a question in a text.",
}
_PIPELINES = {
    "ElectraForMaskedLM": "fill-mask",
    "BertForMaskedLM": "fill-mask",
    "ElectraModel": "feature-extraction",
    "ElectraForSequenceClassification": "text-classification",
    "ElectraForTokenClassification": "token-classification",
    "ElectraForQuestionAnswering": "question-answering",
}
# As `benchmarks.interop.tokenizer` counts them; tokenizers 0.23.3, vocabularies of BERT.
_TOKENIZER = """\
The tokenizer gives the ids of the training, also for words of 101 to 200 characters, where BertTokenizer does not. \
Compared on 8,551 lines: of 6,695 lines of English novels none has other ids. Of the other 1,856, written to be hard, \
some have:

| cause | uncased | uncased with accents | cased |
|---|---|---|---|
| characters that differ between Unicode 11, which the training has, and the tables of `tokenizers` | 69 | 39 | 38 |
| a capital sigma at the end of a word, which the training lowers to a final sigma | 12 | 11 | 0 |
| special tokens written out, such as `[MASK]`: that token here, plain text in the training | 8 | 8 | 8 |
| long words, or any other cause | 0 | 0 | 0 |"""


def model_card(model: StoredModel, network: Network) -> str:
    """The card of one network: metadata for the hub, then how to load it, how it was trained and what it reaches."""
    sections = [
        f"# {_title(model, network)}\n\n{_description(model, network)}",
        _usage(network),
        _section("Notes", "\n".join(f"- {note}" for note in network.notes)),
        _section("Training", _table(("", ""), _training(model, network))),
        _section(_evaluated(model), _table(("metric", "value"), _evaluation(model))),
        _section(
            "Scores on the dev sets of several seeds of fine-tuning",
            _table(("task", "metric", "median", "sigma", "seeds"), _scores(model)),
        ),
        _section("Tokenizer", _TOKENIZER),
    ]
    return f"---\n{_metadata(model, network).to_yaml()}\n---\n\n" + "\n\n".join(filter(None, sections)) + "\n"


def _description(model: StoredModel, network: Network) -> str:
    columns = getattr(model.finetuned.task, "text_columns", ()) if model.finetuned else ()
    texts = {1: "one text", 2: "a pair of texts"}.get(len(columns), _ONE_OR_TWO)
    return _DESCRIPTIONS[network.architecture].replace(_ONE_OR_TWO, texts)


def _metadata(model: StoredModel, network: Network) -> ModelCardData:
    results = list(_results(model))
    datasets = sorted({result.dataset_type for result in results} | _datasets_of(model))
    tags = ["electra"] if network.config["model_type"] == "electra" else ["bert"]
    if model.has_discriminator_head:
        tags.append("replaced-token-detection")
    return ModelCardData(
        library_name="transformers",
        pipeline_tag=_PIPELINES.get(network.architecture),
        tags=tags,
        datasets=datasets or None,
        metrics=sorted({result.metric_type for result in results}) or None,
        model_name=_title(model, network),
        eval_results=results or None,
    )


def _results(model: StoredModel) -> Iterator[EvalResult]:
    """Of a fine-tuned model its own; of an encoder the medians of the models that were fine-tuned from it."""
    own = model.facts.get("evaluation") or {}
    for score in model.facts.get("scores", ()):
        task, metric = score["task"], score["metric"]
        name, value = f"{metric}, median of {score['n']} seeds of fine-tuning", score["median"]
        if model.finetuned:
            name, value = metric, own.get(metric)
        if _dataset(task) and value is not None:
            yield EvalResult(
                task_type=_task_type(model, task),
                dataset_type=_dataset(task),
                dataset_name=task,
                dataset_config=task if task in GLUE_TASKS else None,
                dataset_split="validation",
                metric_type=metric,
                metric_name=name,
                metric_value=value,
            )


def _datasets_of(model: StoredModel) -> set[str]:
    return set(filter(None, [model.finetuned and _dataset(model.finetuned.name)]))


def _dataset(task: str) -> str | None:
    """The hub's name of a task's data."""
    return "nyu-mll/glue" if task in GLUE_TASKS else _SQUAD.get(task)


def _task_type(model: StoredModel, task: str) -> str:
    return "question-answering" if task in _SQUAD else "text-classification"


def _title(model: StoredModel, network: Network) -> str:
    trained = model.finetuned.name if model.finetuned else model.objective
    role = network.name if network.name in ("discriminator", "generator") else ""
    return " ".join(filter(None, ["electra_tf", trained, role]))


def _usage(network: Network) -> str:
    return (
        "```python\n"
        f"from transformers import AutoTokenizer, {network.architecture}\n\n"
        'tokenizer = AutoTokenizer.from_pretrained("FOLDER")\n'
        f'model = {network.architecture}.from_pretrained("FOLDER")\n'
        "```"
    )


def _training(model: StoredModel, network: Network) -> Iterator[tuple[str, str]]:
    facts, config = model.facts, network.config
    if model.finetuned:
        yield "task", model.finetuned.name
    elif model.objective:
        yield "objective", model.objective
    if model.step:
        yield "steps", f"{model.step:,}"
    flops = facts.get("flops") or {}
    for convention, of_what in (("paper", "as the paper counts"), ("hardware", "of the hardware")):
        if flops.get(convention) is not None:
            yield f"FLOPs of pre-training, {of_what}", f"{flops[convention]:.4g}"
    for identity in facts.get("data", ()):
        yield "data set, SHA-256", f"`{identity}`"
    if facts.get("init_from"):
        place = "/".join(facts["init_from"].rstrip("/").split("/")[-2:])  # the rest is of one machine
        yield "weights came from", f"`{place}`"
    yield "parameters", f"{network.num_parameters:,}"
    sizes = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "embedding_size")
    for name in sizes:
        if name in config:
            yield f"`{name}`", f"{config[name]:,}"
    yield "vocabulary", f"{config['vocab_size']:,} word pieces, {'uncased' if model.lower_case else 'cased'}"
    yield "trained with", "electra_tf, TensorFlow; weights converted by `convert_checkpoint.py`"


def _evaluated(model: StoredModel) -> str:
    step = (model.facts.get("evaluation") or {}).get("step", model.step)
    return f"Evaluation {'on the dev set' if model.finetuned else 'on held-out text'}, step {step:,}"


def _evaluation(model: StoredModel) -> Iterator[tuple[str, str]]:
    for name, value in (model.facts.get("evaluation") or {}).items():
        if name != "step":
            yield name, _number(value)


def _scores(model: StoredModel) -> Iterator[tuple[str, ...]]:
    for score in model.facts.get("scores", ()):
        values = (_number(score[name]) for name in ("median", "sigma"))
        yield score["task"], score["metric"], *values, str(score["n"])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _table(header: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    rule = "|" + "---|" * len(header)
    return "\n".join(["| " + " | ".join(header) + " |", rule, *lines]) if lines else ""


def _section(title: str, content: str) -> str:
    return f"## {title}\n\n{content}" if content else ""
