import importlib.util
import shutil
import subprocess
import sys

import pytest

from electra_tf.config.loader import config_to_yaml
from tests.google_storage import HOSTS, start_google_storage
from tests.namespaces import ROOT, namespace, needs_namespaces, start

pytestmark = [
    pytest.mark.slow,
    needs_namespaces,
    pytest.mark.skipif(
        not (importlib.util.find_spec("gcp_storage_emulator") and shutil.which("openssl")),
        reason="pip install -r tests/requirements-stores.txt; apt install openssl",
    ),
]

READ = "import sys, urllib.request as r; sys.stdout.buffer.write(r.urlopen(sys.argv[1]).read())"


def test_a_run_in_gs_that_was_stopped_and_continued_has_the_weights_of_a_local_one(tiny_config, write_data, tmp_path):
    data, checkpoint = write_data(tmp_path / "data"), "checkpoints/step-8.data-00000-of-00001"
    (tmp_path / "tiny.yaml").write_text(config_to_yaml(tiny_config(train={"save_every_steps": 4})))
    command = [ROOT / "run_pretraining.py", f"--config={tmp_path}/tiny.yaml", "--strategy=one_device"]
    with namespace("google", HOSTS) as machine:
        variables = start_google_storage(machine, data, tmp_path)

        def train(data_dir, model_dir, *further) -> int:
            flags = [f"--data_dir={data_dir}", f"--model_dir={model_dir}", *further]
            return start(machine, [*command, *flags], tmp_path / "run.log", **variables).wait(300)

        assert train(data, tmp_path / "run") == 0
        assert train("gs://bucket/data", "gs://bucket/run", "--stop_at_step=4") == 0
        assert train("gs://bucket/data", "gs://bucket/run") == 0
        url = f"http://localhost/bucket/run/{checkpoint}"
        command = ["ip", "netns", "exec", machine, sys.executable, "-c", READ, url]
        stored = subprocess.run(command, check=True, capture_output=True).stdout
    assert stored == (tmp_path / "run" / checkpoint).read_bytes()
