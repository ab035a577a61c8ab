"""The extra of the installation that has a missing package."""

from collections.abc import Generator
from contextlib import contextmanager

from drag_ray.errors import MissingPackageError

_TRAIN_AND_SERVE = (
    *("ray", "torch", "transformers", "sentence_transformers", "huggingface_hub"),
    *("openai", "mcp", "httpx2", "httpcore2", "opentelemetry", "pyseccomp", "trafilatura"),
)
EXTRAS = {
    "train": (
        *("peft", "trl", "accelerate", "deepspeed", "datasets", "safetensors"),
        *("matplotlib", "pandas", "py3langid", "sklearn", *_TRAIN_AND_SERVE),
    ),
    "serve": ("starlette", "fastapi", "uvicorn", "aiohttp", "yarl", "onnx", "onnxruntime", *_TRAIN_AND_SERVE),
    "ocr": ("rapidocr", "cv2", "onnxruntime"),
    "demo": ("botocore", "reportlab"),
    "cpu": ("vllm",),
}
"""The modules that come with an extra of the installation, and that the core does without; Ray asks for pandas and fastapi."""


@contextmanager
def explain_missing(preferred: str = "train") -> Generator[None]:
    """Say which extra has a module that cannot be found within; also a decorator.

    Args:
        preferred: the extra that is named where several have the module.

    Raises:
        MissingPackageError: in place of the error of the import. One of a module that no extra has stays as it is.
    """
    try:
        yield
    except ImportError as error:
        cause = error.__cause__ if isinstance(error.__cause__, ModuleNotFoundError) else error  # Ray raises one of its own
        module = (cause.name or "").partition(".")[0]
        extras = [extra for extra, modules in EXTRAS.items() if module in modules]
        if isinstance(error, MissingPackageError) or not extras:
            raise
        extra = preferred if preferred in extras else extras[0]
        gpu = ", or drag-ray[gpu] on a machine with NVIDIA GPUs" if extra == "cpu" else ""
        raise MissingPackageError(
            f"the package {module!r} is not installed. Run: pip install 'drag-ray[{extra}]'{gpu}."
        ) from error
