"""Text of a picture, read by RapidOCR (PP-OCR models on ONNX Runtime, which come with its package)."""

from functools import cache
from typing import Any

import numpy as np
from PIL import Image

from drag_ray.errors import DataError

DPI = 200
"""Resolution at which pages are drawn for OCR."""
MAX_PIXELS = 2_800_000
"""An A4 or letter page then stays below 2,000 pixels a side, where RapidOCR would shrink it a second time."""


def recognise(image: Image.Image) -> str:
    """The text of an RGB picture, a line of text a line, from top to bottom; empty if there is none.

    Raises:
        DataError: the engine fails on this picture.
    """
    from cv2 import error as OpenCVError  # noqa: N812
    from rapidocr.inference_engine.onnxruntime.main import ONNXRuntimeError

    bgr = np.ascontiguousarray(np.asarray(image)[:, :, ::-1])
    try:
        found = _load_engine()(bgr)
    except (OpenCVError, ONNXRuntimeError) as error:
        raise DataError(f"OCR failed on a picture of {image.width} x {image.height} pixels ({error!s:.200})") from error
    return _join_lines(found.boxes, found.txts) if found.txts else ""


@cache
def _load_engine() -> Any:
    """One engine a process, on one thread: parallel tasks then share the cores instead of fighting for them."""
    import cv2
    from rapidocr import RapidOCR

    cv2.setNumThreads(1)
    return RapidOCR(
        params={
            "Global.log_level": "error",
            "EngineConfig.onnxruntime.intra_op_num_threads": 1,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
            # Lines of one batch are padded to the longest: a fifth of the time for nothing.
            "Rec.rec_batch_num": 1,
        }
    )


def _join_lines(boxes: Any, texts: tuple[str, ...]) -> str:
    """Boxes side by side become one line, joined by a blank.

    Args:
        boxes: corners of each box, N x 4 x 2, from top to bottom.
        texts: what each box says.
    """
    lines: list[list[tuple[float, str]]] = []
    bottom = float("-inf")
    for box, text in zip(boxes, texts, strict=True):
        left, top = box.min(axis=0)
        middle = (top + box[:, 1].max()) / 2
        if middle > bottom:
            lines.append([])
            bottom = box[:, 1].max()
        lines[-1].append((left, text))
    return "\n".join(" ".join(text for _, text in sorted(line)) for line in lines)
