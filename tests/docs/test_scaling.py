"""docs/scaling.md: its commands run as printed, on two logical CPUs and as the only worker, at toy size."""

import json

import pytest

from tests.docs.commands import run_page
from tests.train.test_replicas import worker_environments

SMALL = {
    "--config=base": "--config=tiny --set encoder.vocab_size=47 --set data.max_seq_length=10 --set train.batch_size=4 "
    "--set train.num_steps=2 --set optimizer.warmup_steps=1 --set train.log_every_steps=1",
    "/shared/data": "DATA",
    "/shared/base": "WORKER",
}


@pytest.mark.slow
def test_the_commands_of_the_page_run(write_data, tmp_path):
    write_data(tmp_path / "DATA")
    cluster = json.loads(worker_environments(1)[0]["TF_CONFIG"])["cluster"]
    run_page("scaling", tmp_path, SMALL | {'["gpu-a:12345", "gpu-b:12345"]': json.dumps(cluster["worker"])})
    for run in ("RUN", "WORKER"):
        reports = (tmp_path / run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        assert [json.loads(line)["step"] for line in reports if json.loads(line)["split"] == "train"] == [1, 2]
