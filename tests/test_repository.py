"""Rules for the whole repository: scripts, sizes of files, links, requirement files."""

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

from electra_tf.cli.commands import SUBCOMMANDS
from tests.test_imports import imported_modules

PROJECT = Path(__file__).resolve().parents[1]
WITH_HELP = ["quickstart.sh", "setup.sh", "setup_tpu_vm.sh", "test.sh", "tests/on_tensorflow_2_21.sh"]
SHELL_SCRIPTS = [*WITH_HELP, ".ci/run", ".ci/site", ".ci/wheel"]
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
def test_a_shell_script_is_executable_and_parses(script):
    path = PROJECT / script
    assert path.stat().st_mode & 0o111 == 0o111
    assert subprocess.run(["bash", "-n", path], capture_output=True, text=True).stderr == ""


@pytest.mark.parametrize("script", WITH_HELP)
def test_a_shell_script_prints_its_help_and_does_nothing_else(script):
    answer = subprocess.run([PROJECT / script, "--help"], capture_output=True, text=True, cwd="/")
    comment = (PROJECT / script).read_text(encoding="utf-8").partition("\n# ")[2].partition("\nset -")[0]
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout == comment.replace("\n# ", "\n").replace("\n#\n", "\n\n") + "\n"


def test_what_is_written_depends_on_no_version(tracked_modules):
    """Data sets and runs of an earlier version are read and continued: runs only record the version."""
    shipped = [path.relative_to(PROJECT) for path in tracked_modules if "__version__" in path.read_text()]
    of_package = {str(path) for path in shipped if path.parts[0] in ("electra_tf", "data_prep")}
    assert of_package == {"electra_tf/__init__.py", "electra_tf/cli/commands.py", "electra_tf/train/code.py"}


def test_no_tracked_file_is_large(tracked_files):
    large = {str(path.relative_to(PROJECT)): path.stat().st_size for path in tracked_files}
    assert {name: size for name, size in large.items() if size > MAX_TRACKED_BYTES} == {}


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


def test_no_module_is_longer_than_the_limit(tracked_modules):
    packages = {"electra_tf", "data_prep", "benchmarks", "experiments", "examples"}
    lengths = {
        str(path.relative_to(PROJECT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in tracked_modules
        if path.relative_to(PROJECT).parts[0] in packages
    }
    assert {name: length for name, length in lengths.items() if length >= MAX_MODULE_LINES} == {}


def test_a_script_in_the_root_is_the_command_of_its_module():
    modules = [module for module, _ in SUBCOMMANDS.values()]
    for name in PROGRAMS:
        (module,) = re.findall(r"^from (.+) import main$", (PROJECT / name).read_text(encoding="utf-8"), re.MULTILINE)
        assert module in modules and module.endswith(f".{name.removesuffix('.py')}")


@pytest.mark.parametrize(
    "program",
    ["electra_tf", *(f"electra_tf {name}" for name in SUBCOMMANDS), *PROGRAMS]
    + ["benchmarks.train_step", "experiments.replication"],
)
def test_help_is_fast_and_does_not_import_tensorflow(program):
    # Processor time, which a busy machine does not change.
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    named = [PROJECT / program] if program in PROGRAMS else ["-m", *program.split()]
    command = [sys.executable, "-X", "importtime", *named, "--help"]
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
