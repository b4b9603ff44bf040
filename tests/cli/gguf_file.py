"""A GGUF file taken apart and put together again, with the standard library alone."""
import struct

SCALAR = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
U16, U32, I32, F32, BOOL, STR, ARR, I64 = 2, 4, 5, 6, 7, 8, 9, 11
ALIGN = 32


def string(s):
    s = s.encode() if isinstance(s, str) else s
    return struct.pack("<Q", len(s)) + s


class File:
    """keys: name -> (type, bytes as in a file); tensors: name -> (ne, type, bytes of the data)."""

    def __init__(self, path=None):
        self.keys, self.tensors = {}, {}
        if path:
            self.read(open(path, "rb").read())

    def read(self, b):
        at = 24

        def text():
            nonlocal at
            n = struct.unpack_from("<Q", b, at)[0]
            at += 8 + n
            return b[at - n:at]

        def skip(kind):
            nonlocal at
            if kind == STR:
                text()
            elif kind == ARR:
                elem, n = struct.unpack_from("<IQ", b, at)
                at += 12
                if elem in SCALAR:
                    at += n * struct.calcsize(SCALAR[elem])
                else:
                    for _ in range(n):
                        skip(elem)
            else:
                at += struct.calcsize(SCALAR[kind])

        n_tensors, n_keys = struct.unpack_from("<QQ", b, 8)
        for _ in range(n_keys):
            name, kind = text().decode(), struct.unpack_from("<I", b, at)[0]
            at += 4
            start = at
            skip(kind)
            self.keys[name] = (kind, b[start:at])
        table = []
        for _ in range(n_tensors):
            name, n = text().decode(), struct.unpack_from("<I", b, at)[0]
            ne = struct.unpack_from(f"<{n}Q", b, at + 4)
            kind, offset = struct.unpack_from("<IQ", b, at + 4 + 8 * n)
            at += 16 + 8 * n
            table.append((name, ne, kind, offset))
        data = (at + ALIGN - 1) // ALIGN * ALIGN
        ends = sorted(t[3] for t in table) + [len(b) - data]
        for name, ne, kind, offset in table:
            self.tensors[name] = (ne, kind, b[data + offset:data + min(e for e in ends if e > offset)])

    def set(self, name, kind, value):
        self.keys[name] = (kind, string(value) if kind == STR else struct.pack(SCALAR[kind], value))
        return self

    def bytes(self):
        out = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.keys))
        data = b""
        for name, (kind, raw) in self.keys.items():
            out += string(name) + struct.pack("<I", kind) + raw
        for name, (ne, kind, raw) in self.tensors.items():
            out += string(name) + struct.pack(f"<I{len(ne)}QIQ", len(ne), *ne, kind, len(data))
            data += raw + bytes(-len(raw) % ALIGN)
        return out + bytes(-len(out) % ALIGN) + data

    def write(self, path):
        with open(path, "wb") as f:
            f.write(self.bytes())
        return path

    def split(self, n):
        """The parts of a set of n, as files."""
        parts, names = [], list(self.tensors)
        for i in range(n):
            p = File()
            if i == 0:
                p.keys.update(self.keys)
            p.set("split.no", U16, i).set("split.count", U16, n).set("split.tensors.count", I32, len(names))
            p.tensors = {t: self.tensors[t] for t in names[i * len(names) // n:(i + 1) * len(names) // n]}
            parts.append(p)
        return parts


def write_sparse(path, keys, table):
    """A file of full length whose data are a hole. table: (name, ne, type), of F32 or Q4_0. Returns (elements, bytes of the data)."""
    size = {0: (4, 1), 2: (18, 32)}  # bytes of a block, elements of it
    head = b"GGUF" + struct.pack("<IQQ", 3, len(table), len(keys))
    for name, (kind, raw) in keys.items():
        head += string(name) + struct.pack("<I", kind) + raw
    at = n_all = 0
    for name, ne, kind in table:
        head += string(name) + struct.pack(f"<I{len(ne)}QIQ", len(ne), *ne, kind, at)
        n = 1
        for x in ne:
            n *= x
        n_all += n
        at += n // size[kind][1] * size[kind][0]
        at = (at + ALIGN - 1) // ALIGN * ALIGN
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % ALIGN))
        f.truncate(f.tell() + at)
    return n_all, at
