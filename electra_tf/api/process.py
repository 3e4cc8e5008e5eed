"""What a call from Python leaves as it was in the user's process, and what its errors name."""

import contextlib
import random
import re
from collections.abc import Iterator

import tensorflow as tf
from tf_keras.src.backend import _SEED_GENERATOR

from electra_tf.config.errors import TrainingStopped, UserError

_NAMES = {"set": "settings", "train_file": "train", "validation_file": "validation", "test_file": "test"}
_FLAG = re.compile(r"(?<![\w-])--(\w+)")


@contextlib.contextmanager
def users_process() -> Iterator[None]:
    """Restores TensorFlow's options and the random state of Keras, and lets errors name arguments in place of flags."""
    options, generator = tf.config.optimizer, getattr(_SEED_GENERATOR, "generator", None)
    grappler = options.get_experimental_options()["disable_meta_optimizer"]
    _SEED_GENERATOR.generator = random.Random(0)  # else Keras draws from Python's own
    try:
        yield
    except (UserError, TrainingStopped) as error:
        message = _FLAG.sub(lambda flag: _NAMES.get(flag[1], flag[1]), str(error))
        raise type(error)(message.replace("the flag", "the argument")) from None
    finally:
        options.set_experimental_options({"disable_meta_optimizer": grappler})
        _SEED_GENERATOR.generator = generator
