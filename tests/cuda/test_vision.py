"""torchvision's nms on the device gives the CPU's boxes, and its errors."""

import math

import pytest

import wick as torch

pytestmark = pytest.mark.filterwarnings("error:.*will fall back.*")
torch.ops.load_library("/somewhere/torchvision/_C.so")
nms = torch.ops.torchvision.nms


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [0, 1, 33, 400])
def test_boxes_that_are_kept(count, dtype, threshold):
    torch.manual_seed(count)
    corner, size = torch.randint(0, 90, (count, 2)), torch.randint(0, 30, (count, 2))
    boxes, scores = torch.cat([corner, corner + size], 1).to(dtype), torch.randint(0, 50, (count,)).to(dtype)
    scores[::17] = math.nan
    found = nms(boxes.cuda(), scores.cuda(), threshold)
    assert found.is_cuda and found.tolist() == nms(boxes, scores, threshold).tolist()
    strided = torch.stack([boxes, boxes], 2).cuda()[..., 0]
    assert nms(strided, scores.cuda(), threshold).tolist() == found.tolist()


def test_errors_are_the_cpus():
    for boxes, scores in (torch.zeros(4), torch.zeros(1)), (torch.zeros(2, 4), torch.zeros(3)):
        with pytest.raises(RuntimeError) as wanted:
            nms(boxes, scores, 0.5)
        with pytest.raises(RuntimeError) as found:
            nms(boxes.cuda(), scores.cuda(), 0.5)
        assert str(found.value) == str(wanted.value)
