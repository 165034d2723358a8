"""How small the processors of vision-language models are, and the special tokens that they use."""

from __future__ import annotations

import string
from typing import Any

from .sizes import each

# Attribute of a tokenizer -> special token.
TOKENS = {
    "image_token": "<image>",
    "video_token": "<video>",
    "video_start_token": "<video_start>",
    "video_end_token": "<video_end>",
    "image_start_token": "<image_start>",
    "image_end_token": "<image_end>",
    "boi_token": "<boi>",
    "eoi_token": "<eoi>",
    "vision_start_token": "<vision_start>",
    "vision_end_token": "<vision_end>",
    "fake_image_token": "<fake_token_around_image>",
    "image_boundary_token": "<fake_token_around_image>",
    "global_image_token": "<global-img>",
    "image_break_token": "[IMG_BREAK]",
    "image_end_token_": "[IMG_END]",
    "image_wrapper_token": "<image_wrapper>",
    "eof_token": "<end_of_frame>",
    "audio_token": "<audio>",
    "boa_token": "<audio_start>",
    "eoa_token": "<audio_end>",
    "start_image_token": "<img>",
    "end_image_token": "</img>",
    "context_image_token": "<IMG_CONTEXT>",
}
PLAIN = ["<pad>", "<s>", "</s>", "<mask>", "<unk>", *string.printable[:95], "\n"]
SPELLED = """
<end_of_utterance> <row_1_col_1> <row_1_col_2> <row_2_col_1> <row_2_col_2> <IMG_START> <IMG_GRID> <IMG_ATOM> <IMG_COL> <IMG_ROW> <IMG_END> [IMG]
<|START_OF_IMG|> <|END_OF_IMG|> <|IMG_PATCH|> <|IMG_LINE_BREAK|> TILE_1 TILE_2 TILE_3 TILE_4 TILE_GLOBAL <|IMAGE_PAD|> <|VIDEO_PAD|> <imgpad>
""".split()

SIDE, PATCH = 32, 8
SQUARE = {"size": {"height": SIDE, "width": SIDE}}
CROPPED = {"size": {"shortest_edge": SIDE}, "crop_size": {"height": SIDE, "width": SIDE}}
MERGED = {"patch_size": PATCH, "merge_size": 2, "size": {"shortest_edge": 16 * 64, "longest_edge": 60 * 64}}
SMALL_GEMMA4 = {
    "model_type": "gemma4_vision", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 4, "head_dim": 8, "pooling_kernel_size": 2, "patch_size": PATCH, "position_embedding_size": 64,
}  # fmt: skip
PINPOINTS = [[32, 64], [64, 32], [64, 64]]
GRIDS = """
qwen2_vl qwen2_5_vl qwen3_vl qwen3_vl_moe qwen3_5 qwen3_5_moe glm4v glm4v_moe glm46v glm_ocr exaone4_5 lfm3_vl hyperclovax_vision_v2
ernie4_5_vl_moe cohere_compass cosmos3_edge
"""
CLS = "llava vipllava llava_next llava_next_video video_llava"

# Model type -> arguments of its image processor, of its processor, and of its configuration; the class of its image processor where it has no own.
IMAGES: dict[str, dict[str, Any]] = {
    **each("llava vipllava video_llava", CROPPED),
    **each("llava_next llava_next_video", CROPPED | {"image_grid_pinpoints": PINPOINTS}),
    "llava_onevision": SQUARE | {"image_grid_pinpoints": PINPOINTS},
    **each(GRIDS, MERGED),
    "paddleocr_vl": MERGED | {"min_pixels": 16 * 64, "max_pixels": 40 * 64},
    "video_llama_3": MERGED,
    "gemma4": {"patch_size": PATCH, "max_soft_tokens": 70, "pooling_kernel_size": 2},
    **each("paligemma", SQUARE | {"image_seq_length": 16}),
    **each("gemma3", SQUARE),
    **each("janus deepseek_vl", SQUARE | {"min_size": 8}),
    **each(
        "internvl aya_vision qianfan_ocr granite_docling",
        SQUARE | {"crop_to_patches": True, "min_patches": 1, "max_patches": 4},
    ),
    "hunyuan_vl": {"patch_size": PATCH, "merge_size": 2, "size": {"shortest_edge": 16 * 64, "longest_edge": 60 * 64}},
    **each(
        "idefics3 smolvlm modernvbert ultravbert",
        {"size": {"longest_edge": 2 * SIDE}, "max_image_size": {"longest_edge": SIDE}},
    ),
    "ovis2": SQUARE | {"crop_to_patches": True, "min_patches": 1, "max_patches": 4},
    "lighton_ocr": {"size": {"longest_edge": 64}, "patch_size": {"height": 2 * PATCH, "width": 2 * PATCH}},
    **each("mistral3 mistral_large4", {"size": {"longest_edge": 64}, "patch_size": {"height": PATCH, "width": PATCH}}),
}
# The tokens of most of these are no patches: they are learned queries, or convolutions mix the patches, of which codes are made.
IMAGES |= {
    "chameleon": CROPPED,
    "emu3": {"min_pixels": 1024, "max_pixels": 4096, "spatial_factor": 8},
    "aria": {"max_image_size": 980},
    "got_ocr2": {"size": {"height": 4 * SIDE, "width": 4 * SIDE}, "crop_to_patches": False},
    "idefics2": {"size": {"shortest_edge": 16, "longest_edge": SIDE}, "do_image_splitting": False},
    "deepseek_ocr2": {"size": {"height": 48, "width": 48}, "tile_size": 48},  # 12 x 12 queries
    "deepseek_vl_hybrid": SQUARE | {"min_size": 8, "high_res_size": {"height": 2 * SIDE, "width": 2 * SIDE}},
    "glm5_next": MERGED,
}
CODES = 10
CODEBOOK = {"base_channels": 32, "channel_multiplier": [1, 1, 1, 1], "num_res_blocks": 1}
PROCESSORS: dict[str, dict[str, Any]] = {
    **each(CLS, {"patch_size": PATCH, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}),
    "llava_onevision": {"num_image_tokens": 16, "vision_feature_select_strategy": "full"},
    "gemma3": {"image_seq_length": 4},
    "chameleon": {"image_seq_length": 16},
    **each("internvl qianfan_ocr", {"image_seq_length": 4}),
    **each("granite_docling idefics3 smolvlm modernvbert ultravbert", {"image_seq_len": 4}),
    "ovis2": {"image_seq_length": 16},
    "aya_vision": {"patch_size": PATCH * 2, "img_size": SIDE, "downsample_factor": 1},
    **each("mistral3 lighton_ocr mistral_large4", {"patch_size": PATCH, "spatial_merge_size": 2}),
    **each("janus deepseek_vl deepseek_vl_hybrid", {"num_image_tokens": 16}),
    "deepseek_ocr2": {"patch_size": 4, "downsample_ratio": 1},
}
CONFIGS: dict[str, dict[str, Any]] = {
    "aria": {
        "text_config": {"max_position_embeddings": 512},
        "vision_config": {"image_size": 980, "patch_size": 28},
        "projector_patch_to_query_dict": {1225: 256},
    },
    "deepseek_ocr2": {
        "text_config": {"max_position_embeddings": 1024},
        "vision_config": {"sam_config": {"image_size": 48, "downsample_channels": [32, 32]}},
    },
    "chameleon": {
        "vocabulary_map": {"<image>": 0} | {f"IMGIMG{chr(ord('A') + code)}Z": 180 + code for code in range(CODES)},
        "vq_config": CODEBOOK | {"num_embeddings": CODES, "resolution": SIDE, "latent_channels": 32, "embed_dim": 32},
    },
    "emu3": {
        "vocabulary_map": {"<image>": 0, "<|extra_200|>": 179}
        | {f"<|visual token {code:06d}|>": 180 + code for code in range(CODES)},
        "vq_config": CODEBOOK | {"codebook_size": CODES, "temporal_downsample_factor": 1},
    },
    **each("llava_next llava_next_video llava_onevision", {"image_grid_pinpoints": PINPOINTS}),
    "gemma3": {"mm_tokens_per_image": 4},
    **each("internvl qianfan_ocr", {"vision_config": {"image_size": [SIDE, SIDE], "patch_size": [PATCH, PATCH]}}),
    "granite_docling": {"vision_config": {"scale_factor": 2}},
    "got_ocr2": {  # always 16 x 16 tokens
        "text_config": {"max_position_embeddings": 512},
        "vision_config": {"image_size": 4 * SIDE, "patch_size": 2},
    },
    "gemma4": {"vision_config": SMALL_GEMMA4},
    "deepseek_vl_hybrid": {"high_res_vision_config": {"image_size": 2 * SIDE, "global_attn_indexes": [1]}},
    **each("modernvbert ultravbert", {"pixel_shuffle_factor": 2}),
    "vipllava": {"vision_feature_layers": [-1, -2]},
    **each("qwen2_5_vl exaone4_5 hyperclovax_vision_v2", {"vision_config": {"window_size": 32}}),
}
# The token of a patch, where it is not the one that a text has for an image.
PATCHES = {
    "ovis2": "<IMG_ATOM>",
    "aya_vision": "<|IMG_PATCH|>",
    **each("internvl qianfan_ocr", "<IMG_CONTEXT>"),
    "cohere_compass": "<|IMAGE_PAD|>",
    "got_ocr2": "<imgpad>",
    **each("mistral3 mistral_large4", "[IMG]"),
}
PIL: dict[str, str] = {
    "emu3": "Emu3ImageProcessor",
    "qwen3_vl_moe": "Qwen2VLImageProcessorPil",
    "glm4v_moe": "Glm4vImageProcessorPil",
    "glm_ocr": "Glm46VImageProcessorPil",
    **each("modernvbert ultravbert", "Idefics3ImageProcessorPil"),
}
CLASSES: dict[str, str] = {"glm_ocr": "glm46v"}
# Attributes of the tokenizer that differ.
OWN: dict[str, dict[str, str]] = {"cohere_compass": {"image_token": "<|IMAGE_PAD|>", "video_token": "<|VIDEO_PAD|>"}}
# The prompt has the tokens of the processor for the start and the end of an image.
WRAPPED = {"hunyuan_vl"}
PICTURED = sorted(IMAGES)
