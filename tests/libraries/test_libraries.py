"""Models of transformers, timm and torchvision as they are installed: wick's losses and gradient norms of two training
steps are those that PyTorch 2.13 had (expected.json, by record.py), eager and compiled, with the same seeds.

Thirteen, twelve and six models; with WICK_ALL_MODELS=1 all of the benchmark. `wick.models.check` says what equal means.
"""

import json
import os
import pathlib

import pytest

from wick.models import catalog, check
from wick.models.runs import Runs

HERE = pathlib.Path(__file__).parent
EXPECTED = json.loads((HERE / "expected.json").read_text())
REQUEST = {"do": "train", "full": False, "threads": 1, "time": False}
FEW = """
BartForConditionalGeneration BertForMaskedLM CLIPModel DebertaV2ForMaskedLM GPT2LMHeadModel Gemma3ForCausalLM
LlamaForCausalLM MambaForCausalLM MixtralForCausalLM OpenAIPrivacyFilterForTokenClassification T5ForConditionalGeneration
ViTForImageClassification WhisperForConditionalGeneration

beit_base_patch16_224 convnext_atto efficientvit_b0 eva02_tiny_patch14_224 levit_128s mixer_s16_224 mobilenetv3_small_050
nf_resnet26 regnety_002 swin_tiny_patch4_window7_224 vit_tiny_patch16_224 xcit_nano_12_p16_224

efficientnet_b0 mobilenet_v3_small resnet18 squeezenet1_1 swin_t vit_b_16
""".split()
NAMES = list(catalog.models()) if os.environ.get("WICK_ALL_MODELS") else FEW


@pytest.fixture(scope="module")
def runs():
    with Runs() as workers:
        yield workers


@pytest.mark.parametrize("library", catalog.LIBRARIES)
def test_import(library):
    assert catalog.is_installed(library), f"{library} is not installed: tests/libraries/requirements.txt"


@pytest.mark.parametrize("name", NAMES)
def test_losses_and_gradients_are_pytorchs(name, runs):
    results = {"torch": EXPECTED[name]["float32"], "torch.float64": EXPECTED[name]["float64"]}
    for engine in ("wick", "wick.compile"):
        results[engine] = runs.result(engine, model=name, dtype="float32", **REQUEST)
    if "error" not in results["wick"] and not check.agrees_in_float32(
        results["wick"], results["torch"], results["torch.float64"]
    ):
        results["wick.float64"] = runs.result("wick", model=name, dtype="float64", **REQUEST)
    verdict = check.judge(results, catalog.find(name).same_compiled)
    assert verdict.word in (check.EQUAL, check.ROUNDING), verdict
