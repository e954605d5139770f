"""Models of transformers: language, vision and speech, those that PyTorch 2's benchmark has and today's.

A configuration that is not full has `SMALL` for each name that the model's configuration knows, and the row's own changes.
"""

from functools import partial

from .catalog import Model, Work, integers, mean_square, numbers

# A name stands for what a configuration calls so (its attribute_map included).
SMALL = {
    "vocab_size": 128,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "head_dim": 8,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "d_ff": 64,
    "d_kv": 8,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "embedding_size": 16,
    "image_size": 32,
    "patch_size": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
CONV = {"conv_dim": (16, 16), "conv_kernel": (5, 3), "conv_stride": (4, 2), "num_feat_extract_layers": 2,
        "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2, "mask_time_prob": 0.0}  # fmt: skip
EXPERTS = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
GPT_NEO = {"attention_types": [[["global", "local"], 1]], "window_size": 8}

# {class: changes}
LANGUAGE = {
    "AlbertForMaskedLM": {},
    "AlbertForQuestionAnswering": {},
    "BartForCausalLM": {},
    "BartForConditionalGeneration": {},
    "BertForMaskedLM": {},
    "BertForQuestionAnswering": {},
    "BlenderbotForCausalLM": {},
    "BlenderbotSmallForConditionalGeneration": {},
    "BloomForCausalLM": {},
    "CamembertForMaskedLM": {},
    "ConvBertForMaskedLM": {},
    "DebertaForMaskedLM": {},
    "DebertaV2ForMaskedLM": {"pos_att_type": ["c2p", "p2c"], "relative_attention": True},
    "DebertaV2ForQuestionAnswering": {},
    "DistilBertForMaskedLM": {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4},
    "DistilBertForQuestionAnswering": {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4},
    "ElectraForCausalLM": {"is_decoder": True},
    "ElectraForQuestionAnswering": {},
    "FNetForMaskedLM": {},
    "FalconForCausalLM": {"new_decoder_architecture": True, "num_kv_heads": 2},
    "GPT2LMHeadModel": {},
    "GPT2ForSequenceClassification": {},
    "GPTJForCausalLM": {"rotary_dim": 4},
    "GPTNeoForCausalLM": GPT_NEO,
    "GPTNeoForSequenceClassification": GPT_NEO,
    "GPTNeoXForCausalLM": {},
    "Gemma2ForCausalLM": {"sliding_window": 8, "query_pre_attn_scalar": 8},
    "Gemma3ForCausalLM": {"sliding_window": 8, "query_pre_attn_scalar": 8},
    "GptOssForCausalLM": {**EXPERTS, "sliding_window": 8},
    "LayoutLMForMaskedLM": {},
    "LayoutLMForSequenceClassification": {},
    "LlamaForCausalLM": {},
    "LongformerForMaskedLM": {"attention_window": 8},
    "M2M100ForConditionalGeneration": {},
    "MBartForCausalLM": {},
    "MBartForConditionalGeneration": {},
    "MT5ForConditionalGeneration": {},
    "MambaForCausalLM": {"state_size": 4, "time_step_rank": 4},
    "MegatronBertForCausalLM": {"is_decoder": True},
    "MegatronBertForQuestionAnswering": {},
    "MistralForCausalLM": {"sliding_window": 8},
    "MixtralForCausalLM": {**EXPERTS, "sliding_window": 8},
    "MobileBertForMaskedLM": {"embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32},
    "ModernBertForMaskedLM": {"local_attention": 8},
    "OPTForCausalLM": {"ffn_dim": 64, "word_embed_proj_dim": 32},
    "Olmo2ForCausalLM": {},
    "OpenAIPrivacyFilterForTokenClassification": {**EXPERTS, "sliding_window": 8},
    "PLBartForConditionalGeneration": {},
    "PegasusForConditionalGeneration": {},
    "Phi3ForCausalLM": {},
    "Qwen2ForCausalLM": {},
    "Qwen3ForCausalLM": {},
    "RobertaForCausalLM": {"is_decoder": True},
    "RobertaForQuestionAnswering": {},
    "T5ForConditionalGeneration": {"decoder_start_token_id": 0},
    "TrOCRForCausalLM": {},
    "XGLMForCausalLM": {"ffn_dim": 64, "attention_heads": 4},
    "XLNetLMHeadModel": {"d_inner": 64},
}
VISION = {
    "CLIPModel": {
        "text_config": {**{k: SMALL[k] for k in list(SMALL)[:5] + ["intermediate_size", "pad_token_id",
                        "bos_token_id", "eos_token_id"]}, "max_position_embeddings": 16},
        "vision_config": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
                          "image_size": 32, "patch_size": 8},
        "projection_dim": 16,
    },
    "ConvNextForImageClassification": {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1], "num_stages": 4,
                                       "patch_size": 4},
    "DeiTForImageClassification": {},
    "Dinov2ForImageClassification": {},
    "SwinForImageClassification": {"embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4,
                                   "patch_size": 2},
    "ViTForImageClassification": {},
}  # fmt: skip
SPEECH = {
    "HubertForCTC": CONV,
    "Wav2Vec2ForCTC": CONV,
    "WhisperForConditionalGeneration": {"num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 32},
}
OTHER_COMPILED = ("MambaForCausalLM",)  # scans in logarithmic depth then
# Changes that --full keeps, too.
FULL_ONLY = ("pos_att_type", "relative_attention", "is_decoder", "pad_token_id", "decoder_start_token_id")


def config_of(cls, changes, full):
    """The configuration that a class is made with."""
    if full:
        return cls.config_class(**{k: v for k, v in changes.items() if k in FULL_ONLY})
    known = cls.config_class().to_dict()
    named = {cls.config_class.attribute_map.get(name, name): value for name, value in SMALL.items()}
    return cls.config_class(**{k: v for k, v in named.items() if k in known} | changes)


def text_batch(torch, config, full, task):
    """Tokens (B, T) and what the task asks for."""
    shape = (2, 128 if full else 16)
    vocabulary = getattr(config, "vocab_size", None) or config.text_config.vocab_size
    batch = {"input_ids": 3 + integers(torch, shape, vocabulary - 3)}
    if task == "QuestionAnswering":
        ends = {f"{end}_positions": integers(torch, shape[:1], shape[1], k) for k, end in enumerate(("start", "end"))}
        return batch | ends
    if task == "SequenceClassification":
        return batch | {"labels": integers(torch, shape[:1], config.num_labels)}
    if task == "TokenClassification":
        return batch | {"labels": integers(torch, shape, config.num_labels)}
    return batch | {"labels": batch["input_ids"]}


def vision_batch(torch, config):
    """Images (B, C, H, W) and labels (B,), or texts to match them with."""
    size = getattr(config, "image_size", None) or getattr(config, "vision_config", config).image_size
    images = {"pixel_values": numbers(torch, (2, 3, size, size))}
    if hasattr(config, "text_config"):
        return images | {"input_ids": integers(torch, (2, 16), config.text_config.vocab_size), "return_loss": True}
    return images | {"labels": integers(torch, (2,), config.num_labels)}


def speech_batch(torch, config, full):
    """Spectra (B, mels, T) or waves (B, T), and the tokens (B, T) that were said."""
    labels = {"labels": 3 + integers(torch, (2, 6), config.vocab_size - 3)}
    if hasattr(config, "num_mel_bins"):
        return labels | {"input_features": numbers(torch, (2, config.num_mel_bins, 2 * config.max_source_positions))}
    return labels | {"input_values": numbers(torch, (2, 16000 if full else 400))}


def make(torch, full, name, changes, kind):
    """The model `name` of transformers and a batch for it."""
    import transformers

    cls = getattr(transformers, name)
    config = config_of(cls, changes, full)
    model = cls(config)
    if kind == "vision":
        batch = vision_batch(torch, config)
    elif kind == "speech":
        batch = speech_batch(torch, config, full)
    else:
        batch = text_batch(torch, config, full, name.rpartition("For")[2])
    return Work(model, batch, partial(_loss, torch))


def _loss(torch, output):
    return output.loss if getattr(output, "loss", None) is not None else mean_square(torch, output)


def models():
    """The rows as Models."""
    for kind, rows in (("text", LANGUAGE), ("vision", VISION), ("speech", SPEECH)):
        for name, changes in rows.items():
            function = partial(make, name=name, changes=changes, kind=kind)
            yield Model(name, "transformers", function, name not in OTHER_COMPILED)
