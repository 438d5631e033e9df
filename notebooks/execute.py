"""Executes the notebooks and writes their outputs into them.

    python notebooks/execute.py [NAME.ipynb ...]

Needs nbclient, nbformat and ipykernel, and what the notebooks import:
`make notebooks` sets that up.
"""

import pathlib
import sys
import time

import nbclient
import nbformat

FOLDER = pathlib.Path(__file__).resolve().parent
#: Of the code cells: times and counts of an execution say nothing.
_LEFT_OUT = ("execution", "ExecuteTime")


def execute(path: pathlib.Path, folder: pathlib.Path) -> None:
    """Executes a notebook in `folder`, where the files that it makes stay.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell that fails.
    """
    notebook = nbformat.read(path, as_version=4)
    start = time.monotonic()
    client = nbclient.NotebookClient(
        notebook, timeout=1_800, resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    for cell in notebook.cells:
        for key in _LEFT_OUT:
            cell.metadata.pop(key, None)
        if cell.cell_type == "code":
            # Notes of TensorFlow's start, and progress.
            cell.outputs = [
                x for x in cell.outputs if x.get("name") != "stderr"
            ]
    notebook.metadata = {
        "kernelspec": notebook.metadata["kernelspec"],
        "language_info": {"name": "python"},
    }
    nbformat.write(notebook, path)
    print(f"{path.name}: {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    names = sys.argv[1:] or sorted(x.name for x in FOLDER.glob("*.ipynb"))
    made = FOLDER.parent / "build" / "notebooks"
    made.mkdir(parents=True, exist_ok=True)
    for name in names:
        execute(FOLDER / name, made)
