"""What every model that is read must satisfy."""

import pytest

from electra_tf.config.errors import UserError


@pytest.mark.parametrize("step", [-1, 2**31, 10**30])
def test_a_step_that_no_run_reaches_is_refused(stored_electra, step):
    with pytest.raises(UserError, match=f"source says that it is of step {step}; expected one from 0 to"):
        stored_electra(step=step).require_sound()


@pytest.mark.parametrize("step", [0, 2**31 - 1])
def test_other_steps_pass(stored_electra, step):
    stored_electra(step=step).require_sound()
