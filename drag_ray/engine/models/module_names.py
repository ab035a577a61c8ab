"""Names of the modules of vision-language models, as families of transformers give them."""

LANGUAGE_MODELS = ("model.language_model.", "language_model.model.")
"""Where the language model of a multimodal one lies for transformers and for vLLM. vLLM maps the first to the second, and to it
what the checkpoints of the family have."""
VISION_MODULES = (
    "visual|vision_tower|vision_model|vision_encoder|image_tower|video_tower|vision_embed_tokens|high_res_vision_neck"
)
PROJECTOR_MODULES = (
    "merger|deepstack_merger_list|multi_modal_projector|mm_projector|projector|connector|embed_vision|aligner|vision_projection|"
    "language_projection|image_to_text_projection|qformer|resampler_model|visual_embeddings_table|high_res_vision_proj"
)
"""What lies between vision and language, within the vision part or beside it."""
IMAGE_MODULES = rf"(.*\.)?({VISION_MODULES}|{PROJECTOR_MODULES})(\..*|$)"
"""A pattern of the whole names of both, and of what is in them."""
