"""Models of the Hugging Face Hub, as folders in the cache of huggingface_hub. Only their names reach the network."""

import hashlib
import itertools
import os
import re
from glob import glob

from electra_tf.config.errors import UserError, first_line
from electra_tf.files import HUB, is_hub

_NAME = re.compile(r"[\w.-]+/[\w.-]+")
# The files that are read, in a repository of one network or of two.
_FOLDERS = ("", "discriminator/", "generator/")
_NAMES = (
    *("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "spm.model"),
)
_INDICES = ("model.safetensors.index.json", "tf_model.h5.index.json", "pytorch_model.bin.index.json")
_MODULES = ("modules.json", "*_Pooling/config.json", "sentence_bert_config.json", "config_sentence_transformers.json")
_SETTINGS = [*(f"{folder}{name}" for folder in _FOLDERS for name in (*_NAMES, *_INDICES)), *_MODULES]
# The weights, of which the first that are there are read.
_WEIGHTS = [
    [f"{folder}{name}" for folder in _FOLDERS] for name in ("model*.safetensors", "tf_model*.h5", "pytorch_model*.bin")
]
_ENDINGS = (".safetensors", ".h5", ".bin")  # of weights


def hub_source(path: str | os.PathLike[str], revision: str | None = None) -> str:
    """`hf://OWNER/NAME[@REVISION]` for the name of a model of the Hub; another path unchanged.

    Args:
        path: `hf://OWNER/NAME`, or `OWNER/NAME` where no local file has this name; a `Path` is always a local one.
        revision: a branch, a tag or a commit of the Hub; None: the one in `path`, or the newest commit.
    """
    if isinstance(path, str) and not is_hub(path) and _NAME.fullmatch(path) and not os.path.exists(path):
        path = f"{HUB}{path}"
    path = os.fspath(path)
    return path if revision is None else f"{path.partition('@')[0]}@{revision}"


def download(source: str, flag: str, token: str | bool | None = None) -> tuple[str, str]:
    """Downloads what the cache lacks of a model.

    Args:
        source: `hf://OWNER/NAME[@REVISION]`.
        flag: the flag of the source, for messages.
        token: see `huggingface_hub.snapshot_download`; None: that of the user's login, or of HF_TOKEN.
    Returns: the folder, and the source with the commit as its revision.
    Raises: UserError: there is no such model, access to it is not granted, or the Hub cannot be reached.
    """
    place = f"{flag}={source}"
    name, _, revision = source.removeprefix(HUB).partition("@")
    commit = revision or None
    for weights in _WEIGHTS:
        folder = _snapshot(place, name, commit, token, [*_SETTINGS, *weights])
        commit = os.path.basename(folder)
        if any(glob(pattern, root_dir=folder) for pattern in weights):
            return folder, f"{HUB}{name}@{commit}"
    raise UserError(f"{place} has no model.safetensors, tf_model.h5 or pytorch_model.bin; give another model")


def _snapshot(place: str, name: str, revision: str | None, token: str | bool | None, patterns: list[str]) -> str:
    from huggingface_hub import errors, snapshot_download

    try:
        return snapshot_download(name, revision=revision, token=token, allow_patterns=patterns)
    except errors.GatedRepoError:
        problem = "its owner asks for your agreement: accept the conditions on its page, then log in by `hf auth login`"
    except errors.RepositoryNotFoundError:
        problem = "the Hub has no such model, or it is private: correct the name, or log in by `hf auth login`"
    except (OSError, errors.HTTPError, ValueError) as error:
        problem = f"the download failed ({type(error).__name__}: {first_line(error)}); the same call continues it"
    raise UserError(f"{place}: {problem}")


def upload(
    folder: str, name: str, private: bool | None, token: str | None, revision: str | None = None, overwrite: bool = True
) -> str:
    """Uploads a folder as a model of the Hub, in place of the model that is there. A model card that is there stays.

    Args:
        name: `OWNER/NAME`, or `NAME` of the user's; the repository is made if there is none.
        private: of a new one.
        revision: a branch, made without the files of `main` if there is none; None: `main`.
        overwrite: False to keep a model that is there.
    Returns: the URL of the commit, or of the branch, if that is to be kept and has these weights.
    Raises: UserError: the Hub cannot be reached, or refuses it; other weights are to be kept.
    """
    from huggingface_hub import HfApi, RepoFile, errors

    api = HfApi(token=token)
    try:
        name = api.create_repo(name, private=private, exist_ok=True).repo_id
        if revision is not None and revision not in [branch.name for branch in api.list_repo_refs(name).branches]:
            first_commit = api.list_repo_commits(name)[-1].commit_id
            api.create_branch(name, branch=revision, revision=first_commit)
        tree = api.list_repo_tree(name, recursive=True, revision=revision)
        files = {file.path: file.lfs and file.lfs.sha256 for file in tree if isinstance(file, RepoFile)}
        weights = {path: checksum for path, checksum in files.items() if path.endswith(_ENDINGS)}
        if overwrite or not weights:
            cards = [path for path in files if path.endswith("README.md")]  # with a licence, perhaps
            replaced = [*_SETTINGS, *itertools.chain(*_WEIGHTS)]  # what would be read beside the new files
            return str(
                api.upload_folder(
                    repo_id=name, folder_path=folder, revision=revision, ignore_patterns=cards, delete_patterns=replaced
                )
            )
    except (OSError, errors.HTTPError, ValueError) as error:
        raise UserError(f"{name}: the upload failed ({type(error).__name__}: {first_line(error)})") from None
    checksums = {}
    for path in (path for path in glob("**/*", root_dir=folder, recursive=True) if path.endswith(_ENDINGS)):
        with open(os.path.join(folder, path), "rb") as stream:
            checksums[path] = hashlib.file_digest(stream, "sha256").hexdigest()
    if weights == checksums:
        return f"{api.endpoint}/{name}/tree/{revision or 'main'}"
    raise UserError(f"{name} has another model in {revision or 'main'}; remove it there, or give another name")
