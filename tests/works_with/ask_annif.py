"""Annif suggests subjects by its `http` backend."""

import pathlib
import subprocess
import sys

import agreement
import numpy as np

FOLDER, PORT = pathlib.Path(sys.argv[1]), sys.argv[2]
SUBJECT = "http://example.org/subject/"
PROJECT = f"""[subjects]
name=Subjects
language=en
backend=http
vocab=subjects
endpoint=http://127.0.0.1:{PORT}/suggest
"""


def annif(*arguments, text=None):
    command = [pathlib.Path(sys.executable).with_name("annif"), *arguments]
    return subprocess.run(
        command, check=True, cwd=FOLDER, input=text, text=True, stdout=-1
    ).stdout


agreement.versions("annif")
(FOLDER / "projects.cfg").write_text(PROJECT)
lines = [f"<{SUBJECT}{i}>\tsubject {i}\n" for i in range(30)]
(FOLDER / "subjects.tsv").write_text("".join(lines))
annif("load-vocab", "--language", "en", "subjects", "subjects.tsv")
given = np.load(FOLDER / "texts.npz")
suggested = annif("suggest", "--limit", "3", "subjects", text=given["texts"][0])
print("  annif suggest --limit 3\n    " + "\n    ".join(suggested.splitlines()))
pairs = zip(given["texts"], given["best"])
corpus = [f"{text}\t<{uri}>\n" for text, uri in pairs]
(FOLDER / "corpus.tsv").write_text("".join(corpus))
for line in annif("eval", "subjects", "corpus.tsv").splitlines():
    if line.startswith("Precision@1:"):
        print(f"  annif eval, our best tags as the truth: {line}")
