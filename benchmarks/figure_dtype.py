"""Figures of number formats on CPUs."""

from figure_cells import read_results, to_table

_INSTRUCTIONS = {
    "avx512_bf16": "AVX-512 with BF16",
    "avx512": "AVX-512 without BF16",
    "avx2": "AVX2 alone",
}
_CHOSEN = {"avx512_bf16": "bfloat16", "avx512": "float32", "avx2": "float32"}
_WORK = ("generate", "train")


def _read_speeds() -> dict[tuple[str, str, str], float | None]:
    """Tokens a second of the processor's time, by instructions, format and work."""
    rows = read_results("cpu_dtype")["rows"]
    return {(row["instructions"], row["dtype"], row["work"]): row["tokens_per_cpu_s"] for row in rows}


def write_table() -> str:
    """Speeds by processor, and what `auto` takes there."""
    speeds, limit_s = _read_speeds(), read_results("cpu_dtype")["limit_s"]
    rows: list[list[str]] = []
    for instructions, name in _INSTRUCTIONS.items():
        measured = [speeds[instructions, dtype, work] for work in _WORK for dtype in ("bfloat16", "float32")]
        cells = [f"not two steps in {limit_s:.0f} s" if speed is None else f"{speed:.0f}" for speed in measured]
        rows.append([name, *cells, _CHOSEN[instructions]])
    return to_table(("processor", "generation, bfloat16", "float32", "training, bfloat16", "float32", "`auto`"), rows)
