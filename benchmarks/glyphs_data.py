"""CJK characters drawn from the fonts of Debian: confusable classes for all.

The first `load` fetches the packages below with apt-get (all of Debian's main
section: free licences; nothing is installed).
"""

import glob
import os
import subprocess
from typing import NamedTuple

import numpy as np

from benchmarks import measure

FOLDER = os.path.join(measure.CACHE, "glyphs")
SIDE = 32
_DRAWN = 28  # pixels of an em
# Han, its first extension, and Hangul.
RANGES = (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0xAC00, 0xD7A3)
LEAST_FONTS = 4  # that a class is learned from
# One character in so many is never learned: it is for verification.
NEVER_LEARNED = 10

# (package, file, face): no two of one design in both parts.
LEARNED = (
    ("fonts-noto-cjk", "NotoSansCJK-Regular.ttc", 0),
    ("fonts-noto-cjk", "NotoSansCJK-Bold.ttc", 2),
    ("fonts-noto-cjk", "NotoSerifCJK-Regular.ttc", 0),
    ("fonts-noto-cjk", "NotoSerifCJK-Bold.ttc", 2),
    ("fonts-arphic-uming", "uming.ttc", 0),
    ("fonts-hanazono", "HanaMinA.ttf", 0),
    ("fonts-wqy-microhei", "wqy-microhei.ttc", 0),
    ("fonts-lxgw-wenkai", "LXGWWenKai-Regular.ttf", 0),
    ("fonts-cwtex-ming", "*.ttf", 0),
    ("fonts-cwtex-heib", "*.ttf", 0),
    ("fonts-cwtex-yen", "*.ttf", 0),
    ("fonts-cwtex-fs", "*.ttf", 0),
    ("fonts-vlgothic", "VL-Gothic-Regular.ttf", 0),
    ("fonts-motoya-l-maruberi", "*.ttf", 0),
    ("fonts-kouzan-mouhitsu", "kouzan-mouhitsu.ttf", 0),
    ("fonts-seto", "setofont.ttf", 0),
    ("fonts-konatu", "Konatu.ttf", 0),
    ("fonts-horai-umefont", "ume-tgo4.ttf", 0),
    ("fonts-nanum", "NanumGothic.ttf", 0),
    ("fonts-nanum", "NanumMyeongjo.ttf", 0),
    ("fonts-nanum", "NanumBarunGothic.ttf", 0),
    ("fonts-nanum-extra", "NanumBrush.ttf", 0),
    ("fonts-unfonts-core", "UnDotum.ttf", 0),
    ("fonts-unfonts-core", "UnGungseo.ttf", 0),
    ("fonts-unfonts-core", "UnGraphic.ttf", 0),
    ("fonts-baekmuk", "gulim.ttf", 0),
    ("fonts-baekmuk", "hline.ttf", 0),
)
TESTED = (
    ("fonts-arphic-ukai", "ukai.ttc", 0),
    ("fonts-wqy-zenhei", "wqy-zenhei.ttc", 0),
    ("fonts-ipaexfont-mincho", "ipaexm.ttf", 0),
    ("fonts-baekmuk", "batang.ttf", 0),
    ("fonts-nanum-extra", "NanumPen.ttf", 0),
    ("fonts-unfonts-core", "UnPilgi.ttf", 0),
)


class Glyphs(NamedTuple):
    """Drawings, uint8 `[n, SIDE, SIDE]`, and what they show, class ids."""

    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray  # in fonts that were not learned
    test_y: np.ndarray
    new_x: np.ndarray  # characters that were never learned, in those fonts
    new_y: np.ndarray
    characters: np.ndarray  # int64, code points of the classes

    @property
    def num_classes(self):
        return len(self.characters)


def fetch(package):
    """The folder that a package of Debian is unpacked in."""
    target = os.path.join(FOLDER, package)
    if os.path.isdir(target):
        return target
    work = target + ".part"
    os.makedirs(work, exist_ok=True)
    done = subprocess.run(
        ["apt-get", "download", package],
        cwd=work,
        capture_output=True,
        text=True,
    )
    found = glob.glob(os.path.join(work, "*.deb"))
    if done.returncode or not found:
        raise RuntimeError(
            f"apt-get cannot download {package!r}: {done.stderr.strip()}. "
            "Fix: run this on Debian, after `apt-get update`."
        )
    subprocess.run(["dpkg-deb", "-x", found[0], work], check=True)
    os.remove(found[0])
    os.rename(work, target)
    return target


def font_file(package, name):
    found = os.path.join(fetch(package), "**", name)
    paths = sorted(glob.glob(found, recursive=True))
    if not paths:
        raise RuntimeError(f"There is no {name!r} in {package!r}.")
    return paths[0]


def draw(path, face, codes):
    """`(images, codes)` of the characters a font has; blank ones are left."""
    from PIL import Image
    from PIL import ImageDraw
    from PIL import ImageFont

    font = ImageFont.truetype(
        path, _DRAWN, face, layout_engine=ImageFont.Layout.BASIC
    )
    images, drawn = [], []
    for code in codes:
        image = Image.new("L", (SIDE, SIDE))
        left, top, right, bottom = font.getbbox(chr(code))
        # In the middle, whatever a font's own lines are.
        at = ((SIDE - left - right) / 2, (SIDE - top - bottom) / 2)
        ImageDraw.Draw(image).text(at, chr(code), fill=255, font=font)
        pixels = np.asarray(image)
        if pixels.any():
            images.append(pixels)
            drawn.append(code)
    return np.array(images, np.uint8), np.array(drawn, np.int64)


def drawings(fonts):
    """`(images, codes)` of several fonts, with a line about each."""
    from fontTools.ttLib import TTFont

    images, codes = [], []
    for package, name, face in fonts:
        path = font_file(package, name)
        with TTFont(path, fontNumber=face, lazy=True) as font:
            known = [
                code
                for code in sorted(font.getBestCmap())
                if any(low <= code <= high for low, high in RANGES)
            ]
        found, drawn = draw(path, face, known)
        images.append(found)
        codes.append(drawn)
        print(f"{os.path.basename(path)}: {len(drawn):,} characters")
    return np.concatenate(images), np.concatenate(codes)


def make(learned, tested):
    codes, counts = np.unique(learned[1], return_counts=True)
    codes = np.intersect1d(codes[counts >= LEAST_FONTS], tested[1])
    order = np.random.default_rng(0).permutation(len(codes))
    is_new = np.zeros(len(codes), bool)
    is_new[order[::NEVER_LEARNED]] = True
    classes, new = codes[~is_new], codes[is_new]

    def part(images, codes, characters):
        kept = np.isin(codes, characters)
        return images[kept], np.searchsorted(characters, codes[kept])

    return Glyphs(
        *part(*learned, classes),
        *part(*tested, classes),
        *part(*tested, new),
        classes,
    )


def load():
    """The drawings, made at the first call, as the module's doc says."""
    return measure.pickled(
        "glyphs/glyphs", lambda: make(drawings(LEARNED), drawings(TESTED))
    )
