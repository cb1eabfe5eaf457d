"""Damaged copies of a file: flipped bits, cuts, inserted bytes, swapped and repeated pieces, and special numbers."""

import random
import struct

NUMBERS = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)


def damaged_copies(content: bytes, count: int, *, seed: int):
    """Give ``count`` damaged copies of ``content``; the same ones for the same seed."""
    rng = random.Random(seed)
    for _ in range(count):
        data = bytearray(content)
        for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
            _damage(data, rng)
        yield bytes(data)


def _damage(data: bytearray, rng: random.Random) -> None:
    if not data:
        data += rng.randbytes(8)
        return
    here, length = rng.randrange(len(data)), rng.choice((1, 2, 4, 8, 64, 512))
    there = rng.randrange(len(data))
    kind = rng.randrange(8)
    if kind <= 1:
        data[here] ^= 1 << rng.randrange(8)
    elif kind == 2:
        data[here] = rng.randrange(256)
    elif kind == 3:
        del data[here : len(data) if rng.random() < 0.3 else here + length]
    elif kind == 4:
        data[here:here] = rng.randbytes(length)
    elif kind == 5:
        piece = data[there : there + length]
        data[there : there + length], data[here : here + length] = data[here : here + length], piece
    elif kind == 6:
        data[here:here] = data[there : there + length]
    else:
        width = rng.choice("BHIQ")
        number = struct.pack(f"<{width}", rng.choice(NUMBERS) % (1 << 8 * struct.calcsize(width)))
        data[here : here + len(number)] = number
