"""Signals: the first ends the run at its next step, a second, or one with nothing to save, the process at once."""

import signal
import subprocess
import sys
import time

import pytest

from electra_tf.runs.interruption import Interrupted, Interruption

# A run in small: sits in one call of C for long, as in a loop on the device, and ends when it is asked to.
_PROGRAM = """
import logging, signal, sys, threading
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
from electra_tf.runs.interruption import Interrupted, Interruption
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
asked = threading.Event()
with Interruption() as interruption:
    if sys.argv[1] != "starts":
        with interruption.deferred(asked.set, has_progress=lambda: sys.argv[1] != "compiles"):
            print("ready", flush=True)
            asked.wait(60)
            print("saved", flush=True)
            if sys.argv[1] == "hangs":
                threading.Event().wait(60)
            sys.exit(interruption.interrupted().exit_code)
    print("ready", flush=True)
    threading.Event().wait(60)
"""


@pytest.fixture
def program():
    """`program("trains", SIGTERM, ...)`: sends signals to a program, 0.3 s apart; its status, output and messages."""

    def run(what: str, *signals: signal.Signals) -> tuple[int, str, str]:
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, what], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "ready\n"
        for sent in signals:
            process.send_signal(sent)
            time.sleep(0.3)
        try:
            output, messages = process.communicate(timeout=30)
        finally:
            process.kill()
        return process.returncode, output, messages

    return run


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_a_signal_has_the_run_end_with_a_checkpoint(program, sent, status):
    code, output, messages = program("trains", sent)
    assert (code, output) == (status, "saved\n")
    (line,) = messages.splitlines()
    assert line.startswith(f"{sent.name}: ending at the next step, with a checkpoint")


def test_a_second_signal_ends_the_process_at_once(program):
    code, _, messages = program("hangs", signal.SIGTERM, signal.SIGINT)
    assert code == 130
    assert "SIGINT: a second signal; ended at once" in messages


@pytest.mark.parametrize("what", ["starts", "compiles"])
def test_a_signal_before_the_first_step_ends_the_process_at_once(program, what):
    code, output, messages = program(what, signal.SIGTERM)
    assert (code, output) == (143, "")
    assert "SIGTERM: ended at once, as there is nothing new to save" in messages


def test_a_hangup_that_is_ignored_stays_so():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interruption() as interruption, interruption.deferred(lambda: None, has_progress=lambda: False):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_handlers_from_before_are_put_back():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with Interruption():
        assert signal.getsignal(signal.SIGTERM) is not before[0]
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_worker_that_another_one_stopped_ends_as_by_sigterm():
    assert Interruption().interrupted().exit_code == 143


def test_the_exception_names_its_signal():
    assert str(Interrupted(signal.SIGINT)) == "ended by SIGINT"


def test_handlers_that_a_library_has_replaced_are_put_in_place_again_before_training():
    with Interruption() as interruption:
        ours = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with interruption.deferred(lambda: None, has_progress=lambda: False):
            assert signal.getsignal(signal.SIGTERM) is ours
