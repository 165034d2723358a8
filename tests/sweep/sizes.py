"""How small the models of the sweep are: what configurations call their sizes, the architectures that need more said, and those that can't be swept."""

from __future__ import annotations

from typing import Any


def each(names: str, value: Any) -> dict[str, Any]:
    """The same value for every one of these names."""
    return dict.fromkeys(names.split(), value)


WIDTH, HEADS, GROUPS, HEAD_WIDTH, LAYERS, VOCABULARY, WINDOW, POSITIONS = 32, 4, 2, 8, 2, 200, 5, 128

# Name in the configuration -> small value. Only names that a configuration has are set; None there stays None for the names in OPTIONAL.
SIZES: dict[str, Any] = {
    **each(
        """
        hidden_size n_embd d_model dim emb_dim embed_dim embedding_size encoder_hidden_size hidden_dim
        decoder_hidden_size projection_dim word_embed_proj_dim embedding_dim num_hiddens n_embed
        decoder_n_embd word_embedding_dimension out_hidden_size text_hidden_size
        """,
        WIDTH,
    ),
    **each(
        """
        num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_decoder_layers
        num_encoder_layers decoder_num_hidden_layers depth num_block
        """,
        LAYERS,
    ),
    **each(
        """
        num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads
        num_encoder_attention_heads num_decoder_attention_heads linear_num_value_heads
        decoder_num_attention_heads
        """,
        HEADS,
    ),
    **each(
        """
        num_key_value_heads num_kv_heads n_head_kv swa_num_key_value_heads linear_num_key_heads
        num_global_key_value_heads
        """,
        GROUPS,
    ),
    **each(
        """
        head_dim d_kv attention_head_dim global_head_dim kv_channels attention_head_size v_head_dim
        linear_head_dim qk_nope_head_dim qk_rope_head_dim swa_head_dim linear_key_head_dim
        linear_value_head_dim d_head
        """,
        HEAD_WIDTH,
    ),
    **each(
        """
        intermediate_size ffn_dim encoder_ffn_dim decoder_ffn_dim d_ff n_inner ffn_hidden_size d_inner
        moe_intermediate_size shared_expert_intermediate_size expert_ffn_hidden_size dim_feedforward mlp_dim
        decoder_intermediate_size intermediate_size_mlp moe_shared_expert_intermediate_size
        shared_intermediate_size
        """,
        64,
    ),
    **each("num_experts num_local_experts n_routed_experts moe_num_experts", 4),
    **each("num_experts_per_tok moe_top_k moe_topk top_k_experts num_selected_experts", 2),
    **each("n_group topk_group n_shared_experts moe_num_shared_experts", 1),
    **each("q_lora_rank kv_lora_rank qk_head_dim", 16),
    **each(
        """
        sliding_window sliding_window_size window_size attention_window_size local_attention
        attention_chunk_size attention_window
        """,
        WINDOW,
    ),
    **each(
        """
        max_position_embeddings n_positions n_ctx max_seq_len max_sequence_length block_size max_seq_length
        max_source_positions max_target_positions original_max_position_embeddings context_length seq_length
        """,
        POSITIONS,
    ),
    **each("vocab_size decoder_vocab_size vocab_size_per_layer_input src_vocab_size tgt_vocab_size", VOCABULARY),
    "image_size": 32,
    "img_size": 32,
    "patch_size": 8,
    "num_channels": 3,
    "tubelet_size": 2,
    "num_frames": 4,
    "decoder_start_token_id": 2,
    "num_labels": 3,
    "rotary_dim": 4,
    "num_mel_bins": 8,
    "mamba_n_heads": 8,
    "mamba_d_head": 8,
    "mamba_d_state": 8,
    "mamba_n_groups": 1,
    "mamba_d_ssm": 64,
    "mamba_num_heads": 8,
    "mamba_head_dim": 8,
    "ssm_state_size": 8,
    "state_size": 8,
    "first_k_dense_replace": 1,
    "use_sliding_window": True,
    "max_window_layers": 1,
    "hidden_size_per_layer_input": 8,
    "max_2d_position_embeddings": 64,
    "num_nextn_predict_layers": 0,
    "output_router_logits": False,
    "use_mamba_kernels": False,
    "index_topk": 8,
    "index_n_heads": 2,
    "index_head_dim": 8,
    "query_pre_attn_scalar": 8,
}
OPTIONAL = frozenset(
    {
        "q_lora_rank",
        "sliding_window",
        "num_key_value_heads",
        "n_inner",
        "moe_intermediate_size",
        "intermediate_size",
        "num_kv_heads",
        "global_head_dim",
        "num_global_key_value_heads",
        "decoder_vocab_size",
    }
)
# Every id of a special token that is larger than the vocabulary becomes one of these.
SPECIAL_IDS = {"pad": 0, "bos": 1, "eos": 2, "sep": 2, "cls": 1, "mask": 3, "unk": 4}

MROPE = {"rope_type": "default", "rope_theta": 10000.0}
SWIN = {"embed_dim": 32, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4, "patch_size": 2}
PATTERN = ["sliding_attention", "full_attention"]
# What does not follow from the names.
SPECIAL: dict[str, dict[str, Any]] = {
    **each("swin swinv2 donut-swin maskformer-swin", SWIN),
    "swin2sr": SWIN | {"patch_size": 1, "image_size": 16},
    **each("longformer led", {"attention_window": 4}),
    # An argument that becomes no attribute.
    **each(
        "gemma4_text gemma4_unified_text embedding_gemma2_text",
        {"global_head_dim": 2 * HEAD_WIDTH},
    ),
    "esm": {"vocab_size": VOCABULARY, "pad_token_id": 0, "mask_token_id": 3},
    "esmc": {"num_key_value_heads": HEADS},
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0},
        "ffn_config": {"hidden_size": WIDTH, "ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "gemma3n_text": {
        "num_hidden_layers": 4,
        "layer_types": PATTERN * 2,
        "num_kv_shared_layers": 2,
        "intermediate_size": 64,
        "activation_sparsity_pattern": [0.0] * 4,
        "laurel_rank": 8,
        "altup_num_inputs": 2,
    },
    "mistral4": {
        "num_key_value_heads": HEADS,
        "rope_parameters": MROPE
        | {"partial_rotary_factor": 0.5, "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": POSITIONS},
    },
    "cosmos3_edge_text": {"rope_parameters": MROPE | {"mrope_section": [2, 1, 1]}},
    "glm5_next_text": {"num_key_value_heads": HEADS, "index_kpool": 2, "qk_rope_head_dim": 0},
    "encoder-decoder": {
        "decoder": {
            "model_type": "bert",
            "vocab_size": VOCABULARY,
            "hidden_size": WIDTH,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "intermediate_size": 64,
            "max_position_embeddings": POSITIONS,
            "is_decoder": True,
            "add_cross_attention": True,
        }
    },
    "chameleon": {"vocabulary_map": {"<image>": 199}},
    "sam3_lite_text_text_model": {"use_repmixer_blocks": False},
    "neomme": {"head_dim": 16},
    "lilt": {"hidden_size": 48},
    "luke": {"entity_vocab_size": 20, "entity_emb_size": 8},
    "yolos": {"image_size": [32, 32], "num_detection_tokens": 5},
    "perceiver": {
        "d_latents": 32,
        "num_latents": 8,
        "num_blocks": 1,
        "num_self_attends_per_block": 2,
        "num_self_attention_heads": HEADS,
        "num_cross_attention_heads": HEADS,
    },
    "mobilevitv2": {"image_size": 256},
    "mobilevit": {"image_size": 64},
    "lw_detr_vit": {"num_windows": 4, "num_windows_side": 2},
    **each(
        """
        qwen2_vl_text qwen2_5_vl_text qwen2_5_omni_text paddleocr_vl_text glm4v_text glm_image_text
        glm_ocr_text qwen2_5_omni_talker qwen3_vl_text qwen3_vl_moe_text
        """,
        {"rope_parameters": MROPE | {"mrope_section": [2, 1, 1]}},
    ),
    "glm4v_moe_text": {"rope_parameters": MROPE | {"mrope_section": [1, 1, 0]}},
    "hunyuan_vl_text": {
        "head_dim": HEAD_WIDTH,
        "num_key_value_heads": GROUPS,
        "rope_parameters": MROPE
        | {
            "rope_type": "dynamic",
            "factor": 1.0,
            "alpha": 1.0,
            "xdrope_section": [1, 1, 1, 1],
            "mrope_section": [1, 1, 1, 1],
        },
    },
    "cohere_compass_text": {
        "num_key_value_heads": GROUPS,
        "layer_types": PATTERN,
        "rope_parameters": {"sliding_attention": MROPE, "full_attention": MROPE},
    },
    "deepseek_ocr2_text": {"mlp_layer_types": ["dense", "sparse"], "num_experts_per_tok": 2, "n_routed_experts": 4},
    "unlimited_ocr_text": {"num_key_value_heads": HEADS},
    "diffusion_gemma_text": {
        "num_experts": 4,
        "top_k_experts": 2,
        "moe_intermediate_size": 16,
        "global_head_dim": 2 * HEAD_WIDTH,
    },
    "ernie4_5_vl_moe_text": {
        "moe_intermediate_size": [16, 16],
        "mlp_layer_types": ["dense", "sparse"],
        "rope_parameters": MROPE | {"mrope_section": [1, 1, 2]},
    },
    "granitemoehybrid": {
        "layer_types": ["mamba", "attention"],
        "num_key_value_heads": GROUPS,
        "position_embedding_type": "rope",
    },
    "levit": {
        "hidden_sizes": [16, 24, 32],
        "num_attention_heads": [2, 2, 4],
        "depths": [1, 1, 1],
        "key_dim": [8, 8, 8],
        "image_size": 64,
        "patch_size": 16,
    },
    "lfm2_moe": {
        "layer_types": ["conv", "full_attention", "full_attention"],
        "num_hidden_layers": 3,
        "num_dense_layers": 1,
    },
    "nemotron": {"num_key_value_heads": GROUPS, "head_dim": HEAD_WIDTH},
    "reformer": {
        "axial_pos_embds_dim": (16, 16),
        "axial_pos_shape": (8, 16),
        "attn_layers": ["local", "lsh"],
        "attention_head_size": HEAD_WIDTH,
        "num_buckets": 4,
        "local_attn_chunk_length": 8,
        "lsh_attn_chunk_length": 8,
        "hash_seed": 0,
    },
    "sapiens2": {
        "num_key_value_attention_heads": GROUPS,
        "num_first_full_attention_layers": 1,
        "num_last_full_attention_layers": 0,
        "num_register_tokens": 2,
    },
    "step3p5": {
        "num_hidden_layers": 2,
        "layer_types": PATTERN,
        "sliding_window": WINDOW,
        "num_sliding_attention_heads": HEADS,
        "mlp_layer_types": ["dense", "sparse"],
        "share_expert_dim": 16,
    },
    "vitpose_backbone": {"image_size": [32, 32], "patch_size": [8, 8], "part_features": 8, "num_experts": 1},
    "xmod": {"default_language": "en_XX"},
    "zamba": {
        "num_hidden_layers": 4,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"],
        "n_mamba_heads": 2,
        "num_key_value_heads": HEADS,
        "attention_hidden_size": 64,
        "attention_head_dim": 16,
        "use_mamba_kernels": False,
    },
    "zaya": {"num_experts_per_tok": 1, "router_hidden_size": 16},
    "layoutlmv3": {"coordinate_size": 6, "shape_size": 4},
    "jamba": {
        "num_hidden_layers": 4,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "use_mamba_kernels": False,
        "mamba_dt_rank": 4,
    },
    "bamba": {"attn_layer_indices": [1], "use_mamba_kernels": False},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"], "lru_width": WIDTH},
}

# Standard deviation of the weights: large enough that attention is far from uniform, so that a mistake shows; smaller where nothing is normalised.
SPREAD, SPREADS = 0.3, {"mobilebert": 0.1}

# Types that cannot run on a single text or image, or need packages that are not installed.
VIDEO, BOXES, SOUND, IMAGES = (
    "takes videos",
    "takes boxes of a page beside its text",
    "is made for sound",
    "takes images and text at once",
)
LIBRARY, PART, CUT = (
    "needs a library that is not installed",
    "is a part of a larger model and runs only within it",
    "takes patches that were cut beforehand",
)
RETRIEVAL, NONE = "looks up documents", "has no attention"
NOT_ALONE: dict[str, str] = {
    **each("timesformer videomae vivit xclip_vision_model", VIDEO),
    **each("bros udop", BOXES),
    **each(
        """
        vibevoice_asr fastspeech2_conformer vits musicgen musicgen_decoder musicgen_melody
        musicgen_melody_decoder moshi_depth speecht5 dia_decoder dia_encoder voxtral_realtime qwen2_audio
        nemo_speechlm moonshine csm_depth_decoder_model clvp_decoder
        """,
        SOUND,
    ),
    **each("lxmert vilt shieldgemma2", IMAGES),
    **each(
        """
        dinat timm_backbone timm_wrapper layoutlmv2 eomt eomt_dinov3 gemma3n gemma3n_vision inkling_vision
        inkling_mm_model fast_vlm perception_lm
        """,
        LIBRARY,
    ),
    **each(
        """
        blt_local_decoder blt_local_encoder clvp_encoder t5gemma2_decoder t5gemma2_text
        pix2struct_text_model qwen3_omni_moe_talker_code_predictor qwen3_omni_moe_talker_text
        voxtral_realtime_text gemma4_assistant gemma4_unified_assistant dots3_note llama4_vision_model
        """,
        PART,
    ),
    **each("siglip2 molmo2_vision paddleocr_vl_vision minicpm_ocr_vision minicpmv4_6_vision minicpmv4_7_vision", CUT),
    **each("convnext convnextv2 efficientnet mamba2 janus_vqgan flava_image_codebook", NONE),
    **each("efficientloftr maskformer-swin sam2_hiera_det_model", "is a part of a model for key points or masks"),
    **each("blt qwen4_exp_text molmo2 granite4_vision nemotron_h_omni", "has sizes that do not go small together"),
    "rag": RETRIEVAL,
}
