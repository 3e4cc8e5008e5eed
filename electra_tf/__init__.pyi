from electra_tf.api.conversion import convert as convert
from electra_tf.api.conversion import export as export
from electra_tf.api.data import build_dataset as build_dataset
from electra_tf.api.data import build_vocab as build_vocab
from electra_tf.api.encoder import EncoderLayer as EncoderLayer
from electra_tf.api.encoder import EncoderVectors as EncoderVectors
from electra_tf.api.finetuning import FinetuningResult as FinetuningResult
from electra_tf.api.finetuning import finetune as finetune
from electra_tf.api.finetuning import predict as predict
from electra_tf.api.loading import load as load
from electra_tf.api.loading import push as push
from electra_tf.api.model import Model as Model
from electra_tf.api.pretraining import PretrainingResult as PretrainingResult
from electra_tf.api.pretraining import build_model as build_model
from electra_tf.api.pretraining import evaluate as evaluate
from electra_tf.api.pretraining import pretrain as pretrain
from electra_tf.api.pretraining import pretraining_batches as pretraining_batches
from electra_tf.config.errors import TrainingStopped as TrainingStopped
from electra_tf.config.errors import UserError as UserError

__version__: str
