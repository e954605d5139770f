"""The layers, each in the file that PyTorch users expect it in.

Those that most models use are imported with the package; the files of _LATE when one of their names is first asked for.
"""

from ..._names import files_of as _files_of
from ..._names import late as _late
from .activation import *  # noqa: F403
from .container import *  # noqa: F403
from .dropout import *  # noqa: F403
from .flatten import *  # noqa: F403
from .linear import *  # noqa: F403
from .loss import *  # noqa: F403
from .module import Module  # noqa: F401
from .normalization import *  # noqa: F403
from .padding import *  # noqa: F403
from .pooling import *  # noqa: F403
from .sparse import *  # noqa: F403

# The file's name, then the classes that it gives to torch.nn.
_LATE = {
    "adaptive": "AdaptiveLogSoftmaxWithLoss",
    "attention": "MultiheadAttention",
    "batchnorm": "BatchNorm1d BatchNorm2d BatchNorm3d LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d SyncBatchNorm",
    "conv": "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d LazyConv1d LazyConv2d LazyConv3d "
    "LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d",
    "fold": "Fold Unfold",
    "distance": "CosineSimilarity PairwiseDistance",
    "embedding_bag": "EmbeddingBag",
    "instancenorm": "InstanceNorm1d InstanceNorm2d InstanceNorm3d LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d",
    "lazy": "LazyModuleMixin",
    "linear_cross_entropy": "LinearCrossEntropyLoss LinearCrossEntropyOptions",
    "margin_losses": "CTCLoss CosineEmbeddingLoss GaussianNLLLoss HingeEmbeddingLoss MarginRankingLoss MultiLabelMarginLoss "
    "MultiLabelSoftMarginLoss MultiMarginLoss PoissonNLLLoss SoftMarginLoss TripletMarginLoss "
    "TripletMarginWithDistanceLoss",
    "pixelshuffle": "ChannelShuffle PixelShuffle PixelUnshuffle",
    "rnn": "GRU GRUCell LSTM LSTMCell RNN RNNBase RNNCell RNNCellBase",
    "transformer": "Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer",
    "unpooling": "FractionalMaxPool2d FractionalMaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d",
    "upsampling": "Upsample UpsamplingBilinear2d UpsamplingNearest2d",
}
_FILE_OF = _files_of(_LATE)

__getattr__ = _late(__name__, ("utils", *_LATE), _FILE_OF)


def __dir__():
    return sorted({*globals(), *_LATE, *_FILE_OF})
