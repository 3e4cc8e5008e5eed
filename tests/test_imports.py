"""The modules import each other only as docs/architecture.md allows; the imports are read from the sources."""

import ast
import functools
import sys
from pathlib import Path

import pytest

import electra_tf

PROJECT = Path(__file__).resolve().parents[1]

# A room imports only from rooms before it. (Every room may raise the errors, so they are a room of their own.)
ROOMS = (
    *("checkout", "config.errors", "tensorflow_files", "files", "config", "ops", "text", "models", "data", "flops"),
    *("tasks", "train", "tasks.finetune", "weights", "serving", "finetuning", "reports", "api", "cli", "__main__"),
)
RANKS = {name: rank for rank, name in enumerate(["electra_tf", *(f"electra_tf.{room}" for room in ROOMS)])}
# What each package may import of the project.
ALLOWED = {
    "electra_tf": ("electra_tf",),
    "data_prep": (
        *("data_prep", "electra_tf.text", "electra_tf.data.manifest", "electra_tf.data.records", "electra_tf.config"),
        *("electra_tf.files", "electra_tf.checkout", "electra_tf.cli.flags", "electra_tf.cli.process"),
    ),
    "benchmarks": ("benchmarks", "electra_tf", "data_prep"),
    "experiments": ("experiments", "electra_tf", "data_prep"),
}


@functools.cache
def imported_modules(path: Path) -> set[str]:
    """Every module that a source file imports, also in its functions or for types. (ruff forbids relative imports.)

    For `from a import b` both `a` and `a.b` count, because `b` may be a module.
    """
    modules = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            modules.update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})
    return modules


@functools.cache
def imports_of(*packages: str) -> dict[str, set[str]]:
    """The modules of these packages, each with the modules of these packages that it imports."""
    sources = {}
    for path in (path for package in packages for path in (PROJECT / package).rglob("*.py")):
        parts = path.relative_to(PROJECT).with_suffix("").parts
        sources[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return {name: imported_modules(path) & sources.keys() for name, path in sources.items()}


def room_of(module: str) -> str:
    """The longest name in `RANKS` that contains a module: `electra_tf.models` for `electra_tf.models.heads`."""
    while module not in RANKS and "." in module:
        module = module.rpartition(".")[0]
    return module


def test_imports_in_functions_and_for_types_count(tmp_path):
    (tmp_path / "a.py").write_text("import b.c\ndef f():\n    from d import e\nif TYPE_CHECKING:\n    import g\n")
    assert imported_modules(tmp_path / "a.py") == {"b.c", "d", "d.e", "g"}


def test_every_folder_of_the_package_has_a_rank():
    folders = {f"electra_tf.{path.parent.name}" for path in (PROJECT / "electra_tf").glob("*/__init__.py")}
    assert folders <= RANKS.keys() == {room_of(module) for module in imports_of("electra_tf")}


def test_no_module_has_a_public_name_which_its_import_would_replace():
    assert not {f"electra_tf.{name}" for name in electra_tf.__all__} & imports_of("electra_tf").keys()


def test_a_room_imports_only_from_rooms_below_it():
    upward = {
        f"{module} imports {other}"
        for module, others in imports_of("electra_tf").items()
        for other in others
        if room_of(module) != room_of(other) != "electra_tf" and RANKS[room_of(other)] >= RANKS[room_of(module)]
    }
    assert upward == set()


def test_no_modules_import_each_other_in_a_circle():
    waiting = {
        # A package's __init__ runs before its modules, so a module's import of its own package is no circle.
        module: {other for other in others if not module.startswith(f"{other}.") and other != module}
        for module, others in imports_of(*ALLOWED).items()
    }
    while free := {module for module, others in waiting.items() if not others & waiting.keys()}:
        waiting = {module: others for module, others in waiting.items() if module not in free}
    assert waiting == {}


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_imports_only_what_it_may(package):
    allowed = ALLOWED[package]
    forbidden = {
        f"{module} imports {other}"
        for module, others in imports_of(*ALLOWED).items()
        for other in others
        if module.partition(".")[0] == package
        # `from a.b import c` imports the packages above `a.b.c` too.
        and not other.startswith(allowed)
        and not any(name.startswith(f"{other}.") for name in allowed)
    }
    assert forbidden == set()


def test_the_examples_import_only_packages_that_a_user_of_an_export_has():
    # Except the example of an objective, which is a part of a training.
    paths = [path for path in (PROJECT / "examples").rglob("*.py") if path.name != "random_token_detection.py"]
    siblings = {path.stem for path in paths}
    roots = {name.partition(".")[0] for path in paths for name in imported_modules(path)}
    needed = {"tensorflow", "tensorflow_text", "tensorflow_serving", "grpc", "google", "numpy", "tokenizers"}
    assert roots - set(sys.stdlib_module_names) - siblings == needed
