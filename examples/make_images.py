#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_images.py DIRECTORY: a data set of pictures that look like nothing and can be learnt.

    make_images.py /tmp/store/imagenet/train --images 2000 --kind jpeg
    os2g-s3d --data /tmp/store

Files are CLASS/NUMBER.jpg, of about 110 KB as ImageNet's are (needs Pillow), or CLASS/NUMBER.bin:
3 x 224 x 224 bytes, ready for a network. The same arguments give the same bytes."""

import argparse
import io
import pathlib

import numpy

SIDE = 224
JPEG_SIDES = (500, 375)


def picture(random, label, classes, width, height):
    """Stripes whose direction and colour tell the class, under noise."""
    y, x = numpy.mgrid[0:height, 0:width] / SIDE
    angle = numpy.pi * label / classes
    wave = numpy.sin(40 * (x * numpy.cos(angle) + y * numpy.sin(angle)) + random.uniform(0, 6.28))
    colour = 0.5 + 0.5 * numpy.cos(2 * numpy.pi * (label / classes + numpy.arange(3) / 3))
    clean = 128 + 60 * wave[..., None] * colour
    return numpy.clip(clean + random.normal(0, 25, (height, width, 3)), 0, 255).astype("uint8")


def encode(kind, pixels):
    if kind == "tensors":
        return numpy.ascontiguousarray(pixels.transpose(2, 0, 1)).tobytes()
    import PIL.Image

    out = io.BytesIO()
    PIL.Image.fromarray(pixels).save(out, "JPEG", quality=89)
    return out.getvalue()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--kind", choices=("jpeg", "tensors"), default="tensors")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    suffix = "jpg" if args.kind == "jpeg" else "bin"
    width, height = JPEG_SIDES if args.kind == "jpeg" else (SIDE, SIDE)
    for number in range(args.images):
        label = number % args.classes
        random = numpy.random.default_rng((args.seed, number))
        file = args.directory / f"n{label:04d}" / f"{number:06d}.{suffix}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(encode(args.kind, picture(random, label, args.classes, width, height)))


if __name__ == "__main__":
    main()
