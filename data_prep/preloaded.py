"""TensorFlow, imported at two thirds of the cost: all of the builder that is slow to import, in one module.

Its import makes a few hundred thousand objects that stay; looking for garbage among them takes a third of its time.
"""

import gc

_was_enabled = gc.isenabled()
gc.disable()
try:
    import tensorflow  # noqa: F401
    import tensorflow_text  # noqa: F401
finally:
    if _was_enabled:
        gc.enable()
