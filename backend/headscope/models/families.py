"""Which kind of model a family is, by model_type. Written by tests/support/families.py from the tables of transformers; not to be edited."""

from __future__ import annotations

# Text models in which a token sees itself and tokens before it only.
DECODERS = frozenset(
    """
afmoe apertus arcee aria_text axk1 axk2 bailing_hybrid bamba beam biogpt bitnet bloom blt clip_text_model codegen
cohere cohere2 cohere2_moe cohere_compass_text cpmant ctrl cwm dbrx deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4
diffllama doge dots1 dots3_note dots3_note_text emu3 ernie4_5 ernie4_5_moe exaone4 exaone_moe falcon falcon_h1
falcon_mamba flex_olmo flint fuyu gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text gemma4 gemma4_assistant
gemma4_text gemma4_unified gemma4_unified_assistant gemma4_unified_text git glm glm4 glm4_moe glm4_moe_lite
glm_moe_dsa got_ocr2 gpt-sw3 gpt2 gpt_bigcode gpt_neo gpt_neox gpt_neox_japanese gpt_oss gptj granite granite_swa
granitemoe granitemoe_swa granitemoehybrid granitemoeshared helium hrm_text hunyuan_v1_dense hunyuan_v1_moe hy_v3
hy_v4 hyperclovax inkling2_text inkling_text internlm3 iquestcoder jais2 jamba jetmoe kimi_linear kolibri1 laguna lfm2
lfm2_moe lfm3 llama llama4 llama4_text longcat_flash mamba mamba2 mellum metaclip_2_text_model mimo_v2_flash minicpm3
minimax minimax_m2 minimax_m3_vl_text ministral ministral3 mistral mixtral mllama modernbert-decoder moshi mpt
nanochat nemotron nemotron_h olmo olmo2 olmo3 olmo_hybrid olmoe openai-gpt opt persimmon phi phi3 phi4_multimodal
phimoe qwen2 qwen2_moe qwen3 qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next qwen4_exp
qwen4_exp_text recurrent_gemma rwkv seed_oss smollm3 solar_open stablelm starcoder2 trocr vaultgemma xglm xlstm youtu
zamba zamba2 zaya
""".split()  # noqa: SIM905 - a table of words
)
# Text models that fill in masks: every token sees all others, unless their configuration makes decoders of them.
ENCODERS = frozenset(
    """
albert bert bert-generation big_bird camembert convbert data2vec-text deberta deberta-v2 distilbert electra ernie esm
esmc eurobert flaubert fnet funnel gte ibert jina_embeddings_v3 layoutlm longformer luke megatron-bert mobilebert
modernbert modernvbert mpnet mra neomme nomic_bert nystromformer perceiver reformer rembert roberta
roberta-prelayernorm roc_bert roformer squeezebert tapas ultrabert ultravbert xlm xlm-roberta xlm-roberta-xl xlnet
xmod yoso
""".split()  # noqa: SIM905 - a table of words
)
# Models with two stacks, of which the second reads text.
ENCODER_DECODERS = frozenset(
    """
bart bigbird_pegasus blenderbot blenderbot-small encoder-decoder fsmt led longt5 m2m_100 marian mbart mt5 mvp nllb-moe
pegasus pegasus_x plbart prophetnet switch_transformers t5 t5gemma t5gemma2 umt5 whisper
""".split()  # noqa: SIM905 - a table of words
)
# Models that listen, or speak.
AUDIO = frozenset(
    """
audio-spectrogram-transformer audioflamingo3 bark canary cohere_asr csm data2vec-audio dia fastspeech2_conformer
fastspeech2_conformer_with_hifigan fun_asr_nano glmasr gradium_phonon_tts granite_speech granite_speech5_ctc
granite_speech_plus higgs_audio_v2 hubert kyutai_speech_to_text lasr_ctc moonshine moonshine_streaming
moss_transcribe_diarize musicflamingo musicgen musicgen_melody nemo_speechlm parakeet_ctc pocket_tts pop2piano
qwen2_5_omni qwen2_audio qwen3_asr qwen3_omni_moe seamless_m4t seamless_m4t_v2 sew sew-d speech-encoder-decoder
speech_to_text speecht5 unispeech unispeech-sat vibevoice vibevoice_asr vits voxtral voxtral_realtime wav2vec2
wav2vec2-bert wav2vec2-conformer wavlm
""".split()  # noqa: SIM905 - a table of words
)
# Models that read images and texts and write text.
READERS = frozenset(
    """
aria aya_vision blip blip-2 chameleon cohere2_vision cohere_compass cosmos3_edge cosmos3_omni deepseek_ocr2
deepseek_vl deepseek_vl_hybrid diffusion_gemma ernie4_5_vl_moe evolla exaone4_5 fast_vlm florence2 glm46v glm4v
glm4v_moe glm5_next glm_ocr glmga granite4_vision granite_docling hunyuan_vl hyperclovax_vision_v2 idefics idefics2
idefics3 inkling2 inkling_mm_model instructblip instructblipvideo internvl janus kimi_k25 kosmos-2 kosmos-2.5 lfm2_vl
lfm3_vl lighton_ocr llava llava_next llava_next_video llava_onevision minicpm_ocr minicpmv4_6 minicpmv4_7
minimax_m3_vl mistral3 mistral4 mistral_large4 molmo2 muse_glimmer muse_spark nemotron_h_omni ovis2 paddleocr_vl
paligemma perception_lm pi0 pix2struct pp_chart2table pp_formulanet qianfan_ocr qwen2_5_omni_thinker qwen2_5_vl
qwen2_vl qwen3_omni_moe_thinker qwen3_vl qwen3_vl_moe shieldgemma2 smolvlm step3p7 udop unlimited_ocr video_llama_3
video_llava vipllava vision-encoder-decoder
""".split()  # noqa: SIM905 - a table of words
)
# Models of images. Which of them attend from patch to patch is a table of its own (facts.PREFIXES).
IMAGES = frozenset(
    """
beit bit chmv2 clip conditional_detr convnext convnextv2 cvt d_fine dab-detr data2vec-vision deformable_detr deimv2
deit depth_anything depth_pro detr dinat dinov2 dinov2_with_registers dinov3_convnext dinov3_vit donut-swin dpt
efficientnet focalnet glpn hgnet_v2 hiera ijepa imagegpt levit lw_detr lw_detr_vit maskformer-swin metaclip_2
mobilenet_v1 mobilenet_v2 mobilevit mobilevitv2 pixio poolformer pp_doclayout_v2 pp_doclayout_v3 pp_doclayout_v4
pp_lcnet pp_lcnet_v3 pp_lcnet_v4 pp_ocrv5_mobile_det pp_ocrv5_server_det pp_ocrv6_medium_det pp_ocrv6_small_det
prompt_depth_anything pvt pvt_v2 regnet resnet rf_detr rf_detr_dinov2 rt_detr rt_detr_resnet rt_detr_v2 sapiens2
segformer shieldgemma2 siglip siglip2 superpoint swiftformer swin swinv2 table-transformer textnet timm_backbone
timm_wrapper tipsv2 tipsv2_dpt tipsv2_vision_model upernet uvdoc_backbone vit vit_msn vitdet vitpose_backbone yolos
zoedepth
""".split()  # noqa: SIM905 - a table of words
)
