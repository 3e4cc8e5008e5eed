"""Reports: results of several runs in a table or a picture, and the cost and speed of a run."""
