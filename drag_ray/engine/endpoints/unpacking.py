"""python -m drag_ray.engine.endpoints.unpacking GGUF_FILE FOLDER: write the model of a GGUF file as a Hugging Face folder.

A process of its own does this for whoever needs the model: in one that trains together with others, transformers would leave out
the weights, which it takes for the first of them to write.
"""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def unpack(gguf_path: Path, model_dir: Path) -> None:
    """Write weights, configuration, tokenizer and chat template of SmolLM2 into `model_dir`."""
    source = {"pretrained_model_name_or_path": str(gguf_path.parent), "gguf_file": gguf_path.name}
    model = AutoModelForCausalLM.from_pretrained(**source, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16)
    model.save_pretrained(model_dir)
    tokenizer = AutoTokenizer.from_pretrained(**source)
    # transformers 5.17 takes the token that begins a turn for the one that ends it; the model's own numbers are right.
    tokenizer.eos_token = tokenizer.pad_token = tokenizer.convert_ids_to_tokens(model.config.eos_token_id)
    tokenizer.save_pretrained(model_dir)


if __name__ == "__main__":
    unpack(Path(sys.argv[1]), Path(sys.argv[2]))
