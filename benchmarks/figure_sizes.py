"""Sentences of what is taken on the disk."""

from figure_cells import read_results, to_paragraph


def write_install_size() -> str:
    """What the search core takes, and what everything does."""
    results = read_results("install_size")
    core, everything = results["core"], results["setup"]
    return to_paragraph(
        f"""The search core takes {core["mb"]:.0f} MB ({core["packages"]} packages: Polars, Arrow, SciPy, Tantivy, PDFium) and no
        PyTorch; what `runtime_env/cpu.txt` pins takes {everything["mb"] / 1000:.1f} GB, {everything["torch_mb"] / 1000:.1f} GB of
        which are the ordinary PyTorch with NVIDIA's libraries (Linux, Python 3.11, `benchmarks/results/install_size.json`)."""
    )
