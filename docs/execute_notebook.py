"""Execute the notebook of the documentation where it stands, in the root of the repository (`make notebook`).

What engines and libraries say on standard error is of the machine, and is left out.
"""

from pathlib import Path
from typing import Any

import nbclient  # pyright: ignore[reportMissingImports] - of the list of packages for the documentation
import nbformat  # pyright: ignore[reportMissingImports]

NOTEBOOK = Path(__file__).parent / "notebook.ipynb"


def execute(path: Path) -> None:
    """Run its cells in the working directory, and keep what they show."""
    notebook: Any = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook,
        resources={"metadata": {"path": "."}},
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=["--IPKernelApp.capture_fd_output=False"],
    )
    client.execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    nbformat.write(notebook, path)


if __name__ == "__main__":
    execute(NOTEBOOK)
