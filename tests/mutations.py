"""Change the bytes of valid files at random: any bytes, text by tokens and lines, and formats by their fields.

Every function takes the content and a ``random.Random``, so that a seed decides everything.
"""

import ast
import functools
import gzip
import io
import json
import re
import struct
import warnings
import zipfile

TOKENS = (
    *[
        "nan",
        "-nan",
        "inf",
        "1e400",
        "-1",
        "0",
        "-0",
        "007",
        "1.5",
        "1e3",
        "1e-400",
        "0x10",
        "1_000",
        "true",
        "NA",
        "None",
        "-",
        "+",
        "#",
        "%",
        "//",
        "é",
        "٣",
        "１",
        "²",
        "<b>",
        "../../x",
        "/",
    ],
    *["2017-01-01", "2017-01-01T00:00:00Z", "9999999-01-01", "=1+1", "\x1b[31m"],
    *map(str, (2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63) - 1)),
    *("", "a b", '"', "'", '"a', "\u2028", "\ufeff", "\0", "9" * 400, "9" * 5000),
)
VALUES = (
    *(None, True, False, "", "x", "nan", "inf", "../../x", "/", "a\0b", "\ud800", "9" * 5000),
    *(-1, 0, 1, 2, 2**31, 2**63, 2**64, 10**30, -(2**63) - 1, 0.5, -0.0, 1e308, float("inf"), float("nan")),
    *([], [[]], {}, [None], [-1, 2**40], [1, "a"], [0] * 2000),
    *({"name": "graphquilt.SVD"}, {"name": 3}, {"name": "os.system"}),
)
TOML_VALUES = (
    *[
        "nan",
        "inf",
        "-inf",
        "1e400",
        "1e308",
        "0.5",
        "-1",
        "0",
        "0x10",
        "true",
        "[]",
        "{}",
        "[[1]]",
        "''",
        "'x'",
        "2017-01-01",
        "07:32:00",
    ],
    *["'1e400G'", "'nan'", "'0:0'", "'-1:9'", "'a,b'", "'0,0'", "'0,1,2'", "'-1,1'"],
    *("[1, 'a']", "{a = 1}", "{a.b = 1}", '"\\u0000"', f"'{'9' * 5000}'", "[" * 60 + "]" * 60, str(2**63), str(10**30)),
)
SHAPES = (
    *((), (0,), (1,), (2,), (2, 0), (0, 2), (-1,), (2, -3), (2.5,), ("a",), (None,), (True,), (1,) * 33, (1,) * 70),
    *((2 * 10**12,), (2, 10**12), (2**62, 2), (2**63,), (2**64,), (10**30,), (2**31, 2**31, 2**31), (3, 2**40)),
)
DTYPES = (
    *[
        "|O",
        "<i8",
        ">i8",
        "<i4",
        "<u8",
        "<u1",
        "|b1",
        "<f8",
        "<f4",
        "<f2",
        "<f16",
        "<c16",
        "|S3",
        "|S0",
        "<U4",
        "<U0",
        "<U1000000000",
        "|V8",
        "<i3",
        "x",
        "<i8,<i8",
    ],
    *("<M8[s]", "<m8[ns]", "", [("a", "<i8")], [("a", "|O")], ("<i8", 2)),
)
NUMBERS = (0, 1, -1, 127, 128, 255, 256, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1)
_MAGIC = b"\x93NUMPY"


def mutated(name, content, rng):
    """Return the content of a file with one change, or several."""
    for _ in range(min(8, 1 + int(rng.expovariate(1.2)))):
        content = _once(name, content, rng)
    return content


def _once(name, content, rng):
    change = _format_of(name, content)
    if change is None or rng.random() < 0.3:
        return any_bytes(content, rng)
    try:
        return change(content, rng)
    except Exception:  # an earlier change has left something that its format cannot be told from
        return any_bytes(content, rng)


def _format_of(name, content):
    magics = {_MAGIC: npy_fields, b"PK": zip_members, b"PAR1": parquet_columns, b"\x1f\x8b": gzip_members}
    for magic, change in magics.items():
        if content.startswith(magic):
            return change
    endings = {".json": json_values, ".toml": toml_values, ".safetensors": safetensors_header, ".pickle": any_bytes}
    for ending, change in endings.items():
        if name.endswith(ending):
            return change
    return text_tokens if b"\x00" not in content[:100] else None


def any_bytes(content, rng):
    """Change bytes without regard to their meaning."""
    size = len(content)
    a = rng.randrange(size + 1)
    b = min(size, a + rng.choice((1, 1, 2, 4, 8, 16, 64, 1 + size // 4)))
    c = rng.randrange(b, size + 1)
    width = rng.choice((1, 2, 4, 8))
    number = (rng.choice(NUMBERS) % 2 ** (8 * width)).to_bytes(width, rng.choice(("little", "big")))
    mark = rng.choice((b"\x00", b"\xff", b"\xfe\xff", b"\xc3\x28", b"\r", b"\n\n", b'"'))
    wholes = (b"", b"\n", b"\x00", b"\x00" * 5000, content + content, content[::-1])
    changes = (
        lambda: content[:a],
        lambda: content[:a] + content[b:],
        lambda: content[:b] + content[a:b] * rng.choice((1, 1, 2, 30)) + content[b:],
        lambda: content[:a] + rng.randbytes(rng.choice((1, 2, 4, 16))) + content[a:],
        lambda: content[:a] + mark + content[b:],
        lambda: content[:a] + content[b:c] + content[a:b] + content[c:],
        lambda: content[:a] + number + content[a + width :],
        lambda: content[:a] + bytes(b - a) + content[b:],
        lambda: _flipped(content, rng),
        lambda: _flipped(content, rng) if rng.random() < 0.9 else rng.choice(wholes),
    )
    return rng.choice(changes)()


def _flipped(content, rng):
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 3, 20)) if changed else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def text_tokens(content, rng):
    """Change tokens and lines of a text."""
    lines = content.split(b"\n")
    at = rng.randrange(len(lines))
    token = rng.choice(TOKENS).encode("utf-8", "surrogatepass")
    kind = rng.randrange(10)
    if kind < 4:  # another token in the place of one
        words = list(re.finditer(rb"[^\s,;|\"=]+", lines[at]))
        if words:
            word = rng.choice(words)
            lines[at] = lines[at][: word.start()] + token + lines[at][word.end() :]
    elif kind == 4:
        other = rng.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == 5:
        lines.insert(at, rng.choice((b"", b"   ", b"\t", b"#", token, b"a" * 200_000, b"1 " * 30_000, b",", lines[at])))
    elif kind == 6:
        del lines[at]
    elif kind == 7:  # a column more or fewer, swapped, or in quotes
        mark = next((m for m in (b"\t", b",", b";", b"|", b" ") if m in lines[at]), b",")
        cells = lines[at].split(mark)
        cell = rng.randrange(len(cells))
        cells[cell] = rng.choice((cells[0], b'"' + cells[cell] + b'"', token + mark + token, b'"', b" " + cells[cell]))
        lines[at] = mark.join(rng.choice((cells, cells[::-1], cells[1:])))
    elif kind == 8:
        return rng.choice((b"\n", b"\r\n", b"\r", b"\n\n")).join(lines)
    else:
        return rng.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\x00", b"\n", b"#\n")) + b"\n".join(lines)
    return b"\n".join(lines)


def json_values(content, rng):
    """Replace, remove or rename a value of a JSON document."""
    document = json.loads(content)
    if rng.random() < 0.04:
        return json.dumps(rng.choice(VALUES)).encode("utf-8", "surrogatepass")
    if rng.random() < 0.02:
        return b"[" * 100_000
    places = []

    def walk(value):
        for key in value if isinstance(value, dict) else range(len(value)):
            places.append((value, key))
            if isinstance(value[key], dict | list):
                walk(value[key])

    walk(document)
    parent, key = rng.choice(places)
    kind = rng.randrange(6)
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, dict):
        parent[str(key) + "x"] = parent.pop(key)
    elif kind == 2:
        other, there = rng.choice(places)
        parent[key] = json.loads(json.dumps(other[there]))
    else:
        parent[key] = rng.choice(VALUES)
    return json.dumps(document, indent=rng.choice((None, 1))).encode("utf-8", "surrogatepass")


def toml_values(content, rng):
    """Replace the value of a key of a TOML document, or move, repeat or rename keys."""
    lines = content.decode().splitlines()
    at = rng.randrange(len(lines))
    key, equals, value = lines[at].partition("=")
    kind = rng.randrange(8)
    if kind == 0:
        lines.insert(rng.randrange(len(lines)), rng.choice(("[run]", "[[x]]", "[a.b]", lines[at], "x = 1", "=")))
    elif kind == 1:
        lines[at] = f"{key.strip()}x {equals}{value}"
    elif kind == 2:
        other = rng.choice(lines).partition("=")
        lines[at] = f"{other[0]}= {value}"
    else:
        lines[at] = f"{key}= {rng.choice(TOML_VALUES)}"
    return "\n".join(lines).encode()


def npy_fields(content, rng):
    """Change the header of an array file, or its data."""
    start = 10 if content[6] == 1 else 12
    length = int.from_bytes(content[8:start], "little")
    header, data = ast.literal_eval(content[start : start + length].decode("latin1")), content[start + length :]
    kind = rng.randrange(8)
    if data.startswith(b"{") and rng.random() < 0.7:  # a document in an array of bytes
        data = json_values(data, rng)
        header["shape"], kind = (len(data),), 8
    if kind == 0:
        return content[: start + length] + any_bytes(data, rng)
    if kind == 1:
        return _MAGIC + rng.choice((b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00")) + content[8:]
    if kind == 2:
        header = rng.choice(({}, [], {**header, "x": 1}, "x", {"descr": header["descr"]}))
    elif kind == 3:
        header["descr"] = rng.choice(DTYPES)
    elif kind == 4:
        header["fortran_order"] = rng.choice((True, False, 3, None))
    elif kind < 8:
        shape = header["shape"]
        near = [(*shape[:k], rng.choice(NUMBERS), *shape[k + 1 :]) for k in range(len(shape))]
        header["shape"] = rng.choice((*SHAPES, *near * 5, shape[::-1], tuple(n + 1 for n in shape)))
    text = repr(header).encode("latin1")
    text += b" " * (-(len(text) + start + 1) % 64) + b"\n"
    return content[:8] + len(text).to_bytes(start - 8, "little") + text + data


def zip_members(content, rng):
    """Change, remove, rename or repeat a member of a zip file, whose checksums are right afterwards."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    at = rng.randrange(len(members))
    name, data = members[at]
    packing = zipfile.ZIP_STORED
    kind = rng.randrange(12)
    if kind == 0:
        del members[at]
    elif kind == 1:
        members[at] = (rng.choice(("x.npy", "../x.npy", "/x.npy", "é.npy", name + "x", name[:-1])), data)
    elif kind == 2:
        members.insert(rng.randrange(len(members)), (name, any_bytes(data, rng)))
    elif kind == 3:
        packing = zipfile.ZIP_DEFLATED
    elif kind == 4:
        members[at] = (name, rng.choice(members)[1])
    elif kind == 5 and rng.random() < 0.2:
        members[at], packing = (name, _long_array()), zipfile.ZIP_DEFLATED
    else:
        members[at] = (name, _once(name, data, rng))
    file = io.BytesIO()
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(file, "w", packing) as archive:  # of names twice
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name), data, packing)
    return file.getvalue()


@functools.cache
def _long_array():
    """An array file of 64 MB that compresses to a thousandth."""
    import numpy as np

    file = io.BytesIO()
    np.save(file, np.zeros(1 << 23, dtype=np.int64))
    return file.getvalue()


def gzip_members(content, rng):
    """Change what is inside a gzip file, or its members and their checksums."""
    inside = gzip.decompress(content)
    kind = rng.randrange(8)
    if kind == 0:
        return content[: -rng.randrange(1, 12)]
    if kind == 1:
        return content[:-8] + rng.randbytes(8)
    if kind == 2:
        return content + rng.choice((content, b"\x00" * 20, b"garbage", content[:12]))
    if kind == 3 and rng.random() < 0.2:
        return _long_line() if rng.random() < 0.5 else _many_lines()
    return gzip.compress(_once("", inside, rng), 1, mtime=0)


@functools.cache
def _long_line():
    return gzip.compress(b"1" * (1 << 24), mtime=0)


@functools.cache
def _many_lines():
    return gzip.compress(b"\n" * (1 << 19), mtime=0)


def parquet_columns(content, rng):
    """Change the footer of a Parquet file, or write it again with another column."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    if rng.random() < 0.5:
        length = int.from_bytes(content[-8:-4], "little")
        body, footer, end = content[: -8 - length], content[-8 - length : -8], content[-8:]
        if rng.random() < 0.2:
            return body + footer + (rng.choice(NUMBERS) % 2**32).to_bytes(4, "little") + end[4:]
        if rng.random() < 0.5:  # a number of the footer, which are written seven bits to a byte
            a = rng.randrange(len(footer))
            number = _varint(rng.choice(NUMBERS) % 2**63)
            footer = footer[:a] + number + footer[a + rng.choice((1, len(number))) :]
        else:
            footer = any_bytes(footer, rng)
        return body + footer + struct.pack("<I", len(footer)) + end[4:]
    table = pq.read_table(pa.BufferReader(content))
    at = rng.randrange(table.num_columns)
    n = table.num_rows
    columns = (
        lambda: pa.array([None] * n, pa.int64()),
        lambda: pa.nulls(n),
        lambda: pa.array(np.full(n, np.nan)),
        lambda: pa.array(np.full(n, 2**63, dtype=np.uint64)),
        lambda: pa.array(np.full(n, -(2**63))),
        lambda: pa.array([2**40] * n),
        lambda: pa.array([True] * n),
        lambda: pa.array([b"\xff\xfe"] * n, pa.binary()),
        lambda: pa.array([b"\xff\xfe"] * n, pa.binary()).view(pa.string()),
        lambda: pa.array([[1, 2]] * n),
        lambda: pa.array([{"a": 1}] * n),
        lambda: pa.array(["x"] * n).dictionary_encode(),
        lambda: pa.array([10**18] * n, pa.timestamp("us")),
        lambda: pa.array([1] * n, pa.date32()),
        lambda: pa.array([1] * n, pa.duration("s")),
        lambda: pa.array([10**20] * n, pa.decimal128(30, 3)),
        lambda: pa.array(np.ones(n, dtype=np.float16)),
        lambda: pa.array(["a\x00b", ""] * (n // 2) + [""] * (n % 2)),
    )
    kind = rng.randrange(4)
    if kind == 0:
        table = table.rename_columns(
            [rng.choice((name, name + "x", table.column_names[0])) for name in table.column_names]
        )
    elif kind == 1:
        table = table.slice(0, rng.choice((0, 1, n // 2)))
    else:
        table = table.set_column(at, table.column_names[at], rng.choice(columns)())
    sink = io.BytesIO()
    pq.write_table(table, sink, compression=rng.choice(("snappy", "none", "gzip", "zstd")))
    return sink.getvalue()


def _varint(number):
    parts = bytearray()
    while number > 127:
        parts.append(number % 128 + 128)
        number //= 128
    parts.append(number)
    return bytes(parts)


def safetensors_header(content, rng):
    """Change a value in the JSON header of a safetensors file, with the length of the header right."""
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    metadata = header["__metadata__"]
    if rng.random() < 0.5:
        metadata["settings"] = json_values(metadata["settings"].encode(), rng).decode("utf-8", "replace")
        text = json.dumps(header).encode()
    else:
        text = json_values(json.dumps(header).encode(), rng)
    return struct.pack("<Q", len(text)) + text + data
