"""torchvision's operators on the device give the CPU's boxes and regions, and its errors."""

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


ops = torch.ops.torchvision


def images_and_regions(dtype):
    torch.manual_seed(3)
    corner, size = torch.rand(9, 2) * 12 - 2, torch.rand(9, 2) * 9
    regions = torch.cat([torch.randint(0, 2, (9, 1)), corner, corner + size], 1)
    regions[0, 1:] = torch.tensor([-90.0, -90, -80, -80])  # outside
    regions[1, 3:] = regions[1, 1:3]  # of no size
    return torch.randn(2, 3, 9, 11).to(dtype), regions.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("sampling, aligned", [(-1, False), (-1, True), (2, True)])
def test_means_of_regions(dtype, sampling, aligned):
    images, regions = images_and_regions(dtype)
    wanted = ops.roi_align(images, regions, 0.7, 3, 2, sampling, aligned)
    found = ops.roi_align(images.cuda(), regions.cuda(), 0.7, 3, 2, sampling, aligned)
    assert found.is_cuda and torch.equal(found.cpu(), wanted)
    last = images.cuda().to(memory_format=torch.channels_last)
    assert torch.equal(ops.roi_align(last, regions.cuda(), 0.7, 3, 2, sampling, aligned), found)
    if dtype == torch.float16:
        return
    grads = []
    for device in "cpu", "cuda":
        x = images.clone().to(device).requires_grad_()
        ops.roi_align(x, regions.to(device), 0.7, 3, 2, sampling, aligned).sin().sum().backward()
        grads.append(x.grad.cpu())
    torch.testing.assert_close(*grads)  # sums in another order


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_largest_elements_of_regions(dtype):
    images, regions = images_and_regions(dtype)
    wanted, places = ops.roi_pool(images, regions, 0.7, 3, 2)
    found, found_places = ops.roi_pool(images.cuda(), regions.cuda(), 0.7, 3, 2)
    assert torch.equal(found.cpu(), wanted) and torch.equal(found_places.cpu(), places)
    if dtype == torch.float16:
        return
    grads = []
    for device in "cpu", "cuda":
        x = images.clone().to(device).requires_grad_()
        ops.roi_pool(x, regions.to(device), 0.7, 3, 2)[0].sin().sum().backward()
        grads.append(x.grad.cpu())
    torch.testing.assert_close(*grads)


def test_no_regions_and_regions_of_no_image():
    images, regions = (t.cuda() for t in images_and_regions(torch.float32))
    assert ops.roi_align(images, regions[:0], 1.0, 2, 2, 2, False).shape == (0, 3, 2, 2)
    regions[3, 0] = 2
    for call in (
        lambda: ops.roi_align(images, regions, 1.0, 2, 2, 2, False),
        lambda: ops.roi_pool(images, regions, 1.0, 2, 2),
    ):
        with pytest.raises(IndexError):
            call()
            torch.cuda.synchronize()
