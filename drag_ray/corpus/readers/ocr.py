"""Text of an image, read by RapidOCR (PP-OCR models on ONNX Runtime, which come with its package)."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from PIL import Image

from drag_ray.errors import DataError

DPI = 200
"""Resolution at which pages are rendered for OCR."""
MAX_PIXELS = 2_000_000
"""An A4 or letter page is then below 2,000 pixels a side, where RapidOCR would shrink it a second time; more pixels
cost time and memory (0.8 GB at this size) and read no better."""
# Upright pages were read with a mean confidence of 0.97 and more, pages that stood on their head with 0.63 and less.
_LOW_CONFIDENCE = 0.8


@dataclass(frozen=True, slots=True)
class TextBox:
    """A piece of text of an image, and the upright box around it in pixels from the upper left corner."""

    text: str
    left: float
    top: float
    right: float
    bottom: float


def locate(image: Image.Image) -> list[list[TextBox]]:
    """The pieces of text of an upright RGB image: rows from top to bottom, and in each the boxes from left to right. Raises
    DataError: the engine fails on this image."""
    found = _detect(np.asarray(image))
    return group_rows(found.boxes, found.txts) if found.txts else []


def recognise(image: Image.Image) -> str:
    """The text of an RGB image, a line of text a line, from top to bottom; empty if there is none.

    An image that is read with low confidence is also read upside down, and the reading of higher confidence counts.

    Raises:
        DataError: the engine fails on this image.
    """
    pixels = np.asarray(image)
    text, confidence = _read(pixels)
    if text and confidence < _LOW_CONFIDENCE:
        turned, turned_confidence = _read(pixels[::-1, ::-1])
        return turned if turned_confidence > confidence else text
    return text


def _read(pixels: np.ndarray) -> tuple[str, float]:
    """Text and mean confidence of its lines, 0 to 1."""
    found = _detect(pixels)
    if not found.txts:
        return "", 0.0
    lines = (" ".join(box.text for box in row) for row in group_rows(found.boxes, found.txts))
    return "\n".join(lines), float(np.mean(found.scores))


def _detect(pixels: np.ndarray) -> Any:
    """RapidOCR's `RapidOCROutput` of an RGB image."""
    from cv2 import error as OpenCVError  # noqa: N812
    from rapidocr.inference_engine.onnxruntime.main import ONNXRuntimeError

    try:
        return _load_engine()(np.ascontiguousarray(pixels[:, :, ::-1]))
    except (OpenCVError, ONNXRuntimeError) as error:
        height, width, _ = pixels.shape
        raise DataError(f"OCR failed on an image of {width} x {height} pixels ({error!s:.200}).") from error


@cache
def _load_engine() -> Any:
    """One engine a process, on one thread: parallel tasks then share the cores instead of fighting for them."""
    import cv2
    from rapidocr import RapidOCR

    cv2.setNumThreads(1)
    return RapidOCR(
        params={
            "Global.log_level": "error",
            # The classifier that turns single lines upside down is wrong on about every 20th line of an upright page.
            "Global.use_cls": False,
            "EngineConfig.onnxruntime.intra_op_num_threads": 1,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
            # Lines of one batch are padded to the longest: a fifth of the time for nothing.
            "Rec.rec_batch_num": 1,
        }
    )


def group_rows(boxes: Any, texts: tuple[str, ...]) -> list[list[TextBox]]:
    """Boxes side by side are a row.

    Args:
        boxes: corners of each box, N x 4 x 2, from top to bottom.
        texts: what each box says.
    """
    rows: list[list[TextBox]] = []
    bottom = float("-inf")
    for corners, text in zip(boxes, texts, strict=True):
        (left, top), (right, low) = corners.min(axis=0), corners.max(axis=0)
        if (top + low) / 2 > bottom:
            rows.append([])
            bottom = low
        rows[-1].append(TextBox(text, float(left), float(top), float(right), float(low)))
    return [sorted(row, key=lambda box: (box.left, box.text)) for row in rows]
