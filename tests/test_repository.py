"""Rules for the whole repository: imports as docs/architecture.md allows them, scripts, files, links, requirements."""

import ast
import functools
import re
import resource
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pymdownx.slugs import slugify

import electra_tf
from electra_tf.cli.commands import SUBCOMMANDS

PROJECT = Path(__file__).resolve().parents[1]
SHELL_SCRIPTS = [
    *("quickstart.sh", "setup.sh", "setup_tpu_vm.sh", "test.sh", "tests/on_tensorflow_2_21.sh"),
    *(".ci/run", ".ci/site", ".ci/wheel"),
]
PROGRAMS = sorted(path.name for path in PROJECT.glob("*.py"))
TEXT_SUFFIXES = {".py", ".sh", ".md", ".toml", ".yaml", ".yml", ".Dockerfile"}
MAX_TRACKED_BYTES = 1_500_000
MAX_MODULE_LINES = 400
HELP_SECONDS = 1.0
EXTRAS = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
# The names of packages that are imported under another name.
DISTRIBUTIONS = {
    "grpc": "grpcio",
    "absl": "absl-py",
    "google": "protobuf",
    "official": "tf-models-official",
    "pymdownx": "mkdocs-material",  # which requires it, as mkdocs.yml does
    "sklearn": "scikit-learn",
    "tensorflow_serving": "tensorflow-serving-api",
    "yaml": "PyYAML",
}


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
    """Every module that a source file imports, also in its functions or for types. (ruff forbids relative imports.)"""
    modules = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            modules.update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})  # may be modules
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


@pytest.fixture(scope="module")
def tracked_files() -> list[Path]:
    if not (PROJECT / ".git").exists():
        pytest.skip("not a git checkout")
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, check=True, capture_output=True, text=True).stdout
    return [path for name in listing.split("\0") if name and (path := PROJECT / name).is_file()]


@pytest.fixture(scope="module")
def tracked_modules(tracked_files) -> list[Path]:
    return [path for path in tracked_files if path.suffix == ".py"]


def _requirements(name: str) -> list[Requirement]:
    """Of a file or an extra; without this project's own name, by which an extra takes in others."""
    text = "\n".join(EXTRAS[name]) if name in EXTRAS else (PROJECT / name).read_text(encoding="utf-8")
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith("electra-tf[")]


@pytest.mark.parametrize("script", SHELL_SCRIPTS)
def test_a_shell_script_parses_and_prints_its_help_and_does_nothing_else(script):
    path = PROJECT / script
    assert path.stat().st_mode & 0o111 == 0o111
    assert subprocess.run(["bash", "-n", path], capture_output=True, text=True).stderr == ""
    if not script.startswith(".ci"):
        answer = subprocess.run([path, "--help"], capture_output=True, text=True, cwd="/")
        comment = path.read_text(encoding="utf-8").partition("\n# ")[2].partition("\nset -")[0]
        assert (answer.returncode, answer.stderr) == (0, "")
        assert answer.stdout == comment.replace("\n# ", "\n").replace("\n#\n", "\n\n") + "\n"


def test_what_is_written_depends_on_no_version(tracked_modules):
    """Data sets and runs of an earlier version are read and continued: runs only record the version."""
    shipped = [path.relative_to(PROJECT) for path in tracked_modules if "__version__" in path.read_text()]
    of_package = {str(path) for path in shipped if path.parts[0] in ("electra_tf", "data_prep")}
    assert of_package == {"electra_tf/__init__.py", "electra_tf/cli/commands.py", "electra_tf/train/code.py"}


def test_no_tracked_text_has_a_path_of_one_machine(tracked_files):
    place = re.compile(r"(?<![\w.$}])/(?:work|home|root)" + "/")
    texts = [path for path in tracked_files if path.suffix in TEXT_SUFFIXES or path.name == "run"]
    named = [str(path.relative_to(PROJECT)) for path in texts if place.search(path.read_text(encoding="utf-8"))]
    assert named == []


@functools.cache
def _anchors(page: Path) -> set[str]:
    """What a link may have after `#`, by the rule of GitHub and of mkdocs.yml, which differ for repeated headings."""
    text = re.sub(r"^ *(```+).*?^ *\1 *$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    slug = slugify(case="lower")
    counts = Counter(slug(heading, "-") for heading in re.findall(r"^#{1,6} +(.+)$", text, re.MULTILINE))
    return {anchor for anchor, count in counts.items() if count == 1}


def test_links_and_configurations_in_pages_exist(tracked_files):
    missing = []
    for page in (path for path in tracked_files if path.suffix == ".md"):
        text = page.read_text(encoding="utf-8")
        links = re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", text)
        files = [
            PROJECT / "configs" / name
            for name in re.findall(r"(?:configs/|`)((?:pretrain|finetune)/[a-z0-9_/]+\.yaml)", text)
        ]
        paths = [*(page.parent / link for link, _ in links), *files]
        missing += [f"{page.name}: {path}" for path in paths if not path.exists()]
        for link, anchor in links:
            target = (page.parent / link).resolve() if link else page
            if anchor and target.is_file() and anchor not in _anchors(target):
                missing.append(f"{page.name}: {link}#{anchor}")
    assert missing == []


def test_no_tracked_file_is_large_and_no_module_long(tracked_files):
    packages = {"electra_tf", "data_prep", "benchmarks", "experiments", "examples"}
    for path in tracked_files:
        assert path.stat().st_size <= MAX_TRACKED_BYTES, path
        if path.suffix == ".py" and path.relative_to(PROJECT).parts[0] in packages:
            assert len(path.read_text(encoding="utf-8").splitlines()) < MAX_MODULE_LINES, path


def test_a_script_in_the_root_is_the_command_of_its_module():
    modules = [module for module, _ in SUBCOMMANDS.values()]
    for name in PROGRAMS:
        (module,) = imported_modules(PROJECT / name) & set(modules)
        assert module.endswith(f".{name.removesuffix('.py')}")


@pytest.mark.parametrize(
    "program",
    ["electra_tf", *(f"electra_tf {name}" for name in SUBCOMMANDS), "benchmarks.train_step", "experiments.replication"],
)
def test_help_is_fast_and_does_not_import_tensorflow(program):
    # Processor time, which a busy machine does not change.
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-X", "importtime", "-m", *program.split(), "--help"]
    answer = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=PROJECT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert answer.returncode == 0, answer.stderr[-2000:]
    assert answer.stdout.startswith("usage:")
    assert re.search(r"\|\s+(tensorflow|keras)$", answer.stderr, re.MULTILINE) is None
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < HELP_SECONDS


@pytest.mark.parametrize("name", [*EXTRAS, "requirements.txt", "constraints.in"])
def test_direct_requirements_are_compatible_releases_and_pinned_within_their_bounds(name):
    requirements = _requirements(name)
    assert requirements
    if name != "constraints.in":
        assert [str(each) for each in requirements if [spec.operator for spec in each.specifier] != ["~="]] == []
    pins = {canonicalize_name(pin.name): pin for pin in _requirements("constraints.txt")}
    for requirement in requirements:
        (pinned,) = pins[canonicalize_name(requirement.name)].specifier
        assert pinned.operator == "=="
        assert requirement.specifier.contains(pinned.version), f"{requirement} but constraints.txt has {pinned.version}"


@pytest.mark.parametrize(
    "folders", [("electra_tf", "data_prep", "examples", "."), ("benchmarks", "experiments", "tests")]
)
def test_every_imported_library_is_a_direct_requirement(tracked_modules, folders):
    files = ["requirements.txt", "beam", "clean", "report", "serving"]
    if "electra_tf" not in folders:
        # Peers and the TPU's compiler have environments of their own.
        files += ["dev", *(f"benchmarks/requirements-{name}.txt" for name in ("peers", "tpu-compile"))]
        files.append("tests/requirements-stores.txt")
    required = {canonicalize_name(requirement.name) for name in files for requirement in _requirements(name)}
    # `packaging` comes with pytest.
    ours = {"electra_tf", "data_prep", "benchmarks", "experiments", "examples", "tests"}
    # Scripts of one folder import each other by name.
    beside = {path.stem for path in tracked_modules if path.is_relative_to(PROJECT / "examples")}
    known = ours | beside | {"packaging"} | {Path(name).stem for name in PROGRAMS}
    missing = set()
    for path in tracked_modules:
        folder = path.relative_to(PROJECT).parts[0] if path.parent != PROJECT else "."
        if folder in folders:
            roots = {name.partition(".")[0] for name in imported_modules(path)}
            for root in roots - known - set(sys.stdlib_module_names):
                if canonicalize_name(DISTRIBUTIONS.get(root, root)) not in required:
                    missing.add(f"{path.relative_to(PROJECT)}: {root}")
    assert missing == set()


def test_the_constraints_name_their_command_and_no_package_index():
    text = (PROJECT / "constraints.txt").read_text(encoding="utf-8")
    assert re.search(r"://|--(?:extra-)?index-url|--find-links|@ ", text) is None
    assert "uv pip compile --universal --python-version 3.11" in text.splitlines()[1]


# The types that a user's type checker sees.
TYPES = {
    "load('run')": "Model",
    "load('run').encode(['a'])": "ndarray[tuple[int, ...], dtype[floating[_32Bit]]]",
    "load('run').detect('a')": "ndarray[tuple[int, ...], dtype[floating[_32Bit]]]",
    "load('run').tokens(['a'])": "list[list[str]]",
    "load('run').fill_mask('a [MASK]')": "list[list[tuple[str, float]]]",
    "load('run').fill_mask(['a [MASK]'], top_k=2)": "list[list[list[tuple[str, float]]]]",
    "load('run').encoder": "EncoderLayer",
    "pretrain('small', 'data', 'run').history": "list[dict[str, Any]]",
    "finetune('classification', init_from='run', output_dir='out').score": "float",
}
MISTAKES = {
    "load('run', layer=3)": "call-arg",
    "pretrain('small', 'data')": "call-arg",
    "build_dataset('a.txt', 'vocab.txt', 'data', num_processes='2')": "arg-type",
    "finetune('classification', init_from='run', output_dir='out', seeds=3)": "arg-type",
}


@pytest.mark.slow
def test_a_use_of_the_interface_has_a_type_and_a_mistake_is_an_error(tmp_path):
    uses = [*TYPES, *MISTAKES]
    file = tmp_path / "uses.py"
    lines = [f"reveal_type(electra_tf.{use})" if use in TYPES else f"electra_tf.{use}" for use in uses]
    file.write_text("\n".join(["import electra_tf", *lines]), encoding="utf-8")
    answer = subprocess.run([sys.executable, "-m", "mypy", file], capture_output=True, text=True, cwd=PROJECT)
    messages = re.findall(
        r'uses\.py:(\d+): (?:note: Revealed type is "(.*)"|error: .*\[([a-z-]+)\])$', answer.stdout, re.M
    )
    # Types without their modules.
    found = {uses[int(line) - 2]: re.sub(r"(\w+\.)+(?=\w)", "", shown) or error for line, shown, error in messages}
    assert found == TYPES | MISTAKES
