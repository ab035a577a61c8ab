"""Model folders with the shapes of Qwen3-VL and no weights: for speed measurements and for tests of the image path; and shapes of
Qwen2.5.

vLLM makes random weights for such a folder with `engine.load_format = "dummy"`.
"""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

# Qwen/Qwen3-VL-8B-Instruct, config.json
SHAPES_8B: dict[str, Any] = {
    "text_config": {
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "max_position_embeddings": 262144,
        "rope_theta": 5000000,
    },
    "vision_config": {
        "depth": 27,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_heads": 16,
        "out_hidden_size": 4096,
        "deepstack_visual_indexes": [8, 16, 24],
    },
}
# Two layers of the same kinds.
SHAPES_TINY: dict[str, Any] = {
    "text_config": {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": 32768,
    },
    "vision_config": {
        "depth": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 2,
        "out_hidden_size": 64,
        "deepstack_visual_indexes": [1],
    },
}
SHAPES_TEXT: dict[str, dict[str, Any]] = {
    # Qwen/Qwen2.5-1.5B-Instruct and Qwen/Qwen2.5-7B-Instruct, config.json
    "1.5b": {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    },
    "7b": {
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "tie_word_embeddings": False,
    },
    "tiny-text": {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
    },
}
IMAGE_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")


def write_model(folder: Path, tokenizer_dir: Path, shapes: dict[str, Any], *, max_pixels: int = 16_777_216) -> Path:
    """Write configuration, tokenizer, image processor and chat template; no weights.

    Args:
        folder: where to write.
        tokenizer_dir: a tokenizer of any family; the tokens that stand for images are added if it lacks them.
        shapes: `SHAPES_8B` or `SHAPES_TINY`; a vocabulary size that they do not name is the tokenizer's.
        max_pixels: pixels of an image after the processor has resized it.
    """
    from transformers import AutoTokenizer, Qwen3VLConfig, Qwen3VLProcessor
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor
    from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

    tokenizer: Any = AutoTokenizer.from_pretrained(tokenizer_dir)
    tokenizer.add_special_tokens({"additional_special_tokens": [*IMAGE_TOKENS]}, replace_extra_special_tokens=False)
    start, end, image, video = tokenizer.convert_tokens_to_ids(list(IMAGE_TOKENS))
    text: dict[str, Any] = {"vocab_size": len(tokenizer), "tie_word_embeddings": False, **shapes["text_config"]}
    head_dim = text["head_dim"]
    sections = [head_dim // 2 - 2 * (head_dim * 5 // 32), head_dim * 5 // 32, head_dim * 5 // 32]
    rope = {"rope_type": "default", "mrope_section": sections, "mrope_interleaved": True}
    text["rope_parameters"] = rope | {"rope_theta": text.pop("rope_theta", 5_000_000)}
    vision = {"patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2, **shapes["vision_config"]}
    config = Qwen3VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
        architectures=["Qwen3VLForConditionalGeneration"],
        dtype="bfloat16",
    )
    pixels = {"shortest_edge": 65_536, "longest_edge": max_pixels}
    normal: dict[str, Any] = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    image_processor = Qwen2VLImageProcessor(patch_size=16, merge_size=2, temporal_patch_size=2, size=pixels, **normal)
    template = (files("trl") / "chat_templates" / "qwen3_vl.jinja").read_text(encoding="utf-8")
    tokenizer.chat_template = template
    processor = Qwen3VLProcessor(image_processor, tokenizer, Qwen3VLVideoProcessor(), chat_template=template)
    folder.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(folder)
    processor.save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": tokenizer.eos_token_id}))
    return folder


def drop_words(shapes: dict[str, Any]) -> dict[str, Any]:
    """Shapes with as many words as the tokenizer has, for a model that writes: a random one would write those beyond."""
    return shapes | {"text_config": {key: value for key, value in shapes["text_config"].items() if key != "vocab_size"}}


def write_random_weights(folder: Path) -> None:
    """Give a folder of `write_model` random weights, which training needs: it loads the model from there."""
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(folder), dtype=torch.bfloat16)
    model.save_pretrained(folder)
    del model
    torch.cuda.empty_cache()  # does nothing without a GPU
