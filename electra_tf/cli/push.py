"""Uploads a trained model to the Hugging Face Hub, after `hf auth login`.

    electra-tf push --from=RUN --name=ME/electra --private
    electra-tf push --from=RUN --name=ME/electra --milestones

The second command first uploads each milestone of the run to a branch: electra_tf.load("ME/electra",
revision="step-62500"). Branches that have it already are left out, so the same command continues, also a run that has
been trained further. A model in main is replaced, and its model card stays. See docs/interop.md.
"""

import electra_tf
from electra_tf.cli.configuration import local_or_url, print_order
from electra_tf.cli.flags import add_objective_module_flag, flag_parser
from electra_tf.weights import FOLDERS


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("--from", required=True, dest="source", metavar="PATH", help="the model to upload")
    parser.add_argument("--name", required=True, metavar="OWNER/NAME", help="of the model on the Hub; made if missing")
    parser.add_argument("--milestones", action="store_true", help="upload each milestone of a run to a branch step-N")
    parser.add_argument("--revision", metavar="BRANCH", help="branch of the model (default: main)")
    parser.add_argument("--private", action="store_true", default=None, help="make a new repository a private one")
    parser.add_argument("--format", default="hugging_face", choices=FOLDERS, help="format to write")
    add_objective_module_flag(parser)
    arguments = parser.parse_args(argv)
    arguments.source = local_or_url(arguments.source)
    # `electra_tf.push` imports TensorFlow, which takes seconds: only after the flags are parsed.
    return print_order(arguments, lambda **flags: electra_tf.push(**flags))
