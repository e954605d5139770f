"""The layers, each in the file that PyTorch users expect it in.

Those that most models use are imported with the package; the files of _LAZY when one of their names is first asked for.
"""

from .activation import *  # noqa: F403
from .container import *  # noqa: F403
from .dropout import *  # noqa: F403
from .flatten import *  # noqa: F403
from .linear import *  # noqa: F403
from .loss import *  # noqa: F403
from .module import Module  # noqa: F401
from .normalization import *  # noqa: F403
from .padding import *  # noqa: F403
from .sparse import *  # noqa: F403

# The file's name, then the classes that it gives to torch.nn.
_LAZY = {
    "attention": "MultiheadAttention",
    "batchnorm": "BatchNorm1d BatchNorm2d BatchNorm3d LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d SyncBatchNorm",
    "distance": "CosineSimilarity PairwiseDistance",
    "embedding_bag": "EmbeddingBag",
    "instancenorm": "InstanceNorm1d InstanceNorm2d InstanceNorm3d LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d",
    "lazy": "LazyModuleMixin",
    "margin_losses": "CosineEmbeddingLoss GaussianNLLLoss HingeEmbeddingLoss MarginRankingLoss MultiLabelMarginLoss "
    "MultiLabelSoftMarginLoss MultiMarginLoss PoissonNLLLoss SoftMarginLoss TripletMarginLoss "
    "TripletMarginWithDistanceLoss",
    "pixelshuffle": "ChannelShuffle PixelShuffle PixelUnshuffle",
    "rnn": "GRU GRUCell LSTM LSTMCell RNN RNNBase RNNCell RNNCellBase",
    "transformer": "Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer",
    "upsampling": "Upsample UpsamplingBilinear2d UpsamplingNearest2d",
}
_FILE_OF = {name: file for file, names in _LAZY.items() for name in names.split()}


def __getattr__(name):
    from importlib import import_module

    if name in _LAZY:
        return import_module(f"{__name__}.{name}")
    if name in _FILE_OF:
        value = globals()[name] = getattr(import_module(f"{__name__}.{_FILE_OF[name]}"), name)
        return value
    from ..._names import missing

    raise missing(__name__, name)


def __dir__():
    return sorted({*globals(), *_LAZY, *_FILE_OF})
