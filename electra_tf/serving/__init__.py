"""SavedModels of trained models, and the files that TensorFlow Serving needs beside them."""
