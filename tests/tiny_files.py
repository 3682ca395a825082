"""Tiny files in the official layout of each data set."""

import gzip
import io
import json
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "film", "##s", "un", "##watch", "##able", ",", "a"]


def idx(array: np.ndarray) -> bytes:
    code = {"uint8": 0x08, "int32": 0x0C}[array.dtype.name]
    shape = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes([0, 0, code, array.ndim]) + shape + array.astype(array.dtype.newbyteorder(">")).tobytes()


def put(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def images(rows: int, seed: int = 0, classes: int = 10) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (rows, 28, 28), dtype=np.uint8), (np.arange(rows) % classes).astype(np.uint8)


def mnist(folder: Path, name: str = "mnist", writers: bool = True) -> dict[str, np.ndarray]:
    found = {}
    for prefix, rows, seed in (("train", 40, 0), ("t10k", 20, 1)):
        x, y = images(rows, seed)
        put(folder / name, f"{prefix}-images-idx3-ubyte.gz", gzip.compress(idx(x)))
        put(folder / name, f"{prefix}-labels-idx1-ubyte.gz", gzip.compress(idx(y)))
        found[prefix] = x
        if writers:
            # Like QMNIST, the test file has more rows than MNIST's test part.
            more = rows + (5 if prefix == "t10k" else 0)
            table = np.zeros((more, 8), dtype=np.int32)
            table[:rows, 0], table[:, 2] = y, 100 + seed * 50 + np.arange(more) // 10
            long = {"train": "train", "t10k": "test"}[prefix]
            put(folder / name, f"qmnist-{long}-labels-idx2-int.gz", gzip.compress(idx(table)))
    return found


def emnist(folder: Path, variant: str = "byclass", zipped: bool = True, first: int = 0) -> dict[str, np.ndarray]:
    files, found = {}, {}
    for part, rows in (("train", 70), ("test", 62)):
        x, y = images(rows, classes=26 if variant == "letters" else 62)
        files[f"emnist-{variant}-{part}-images-idx3-ubyte.gz"] = gzip.compress(idx(x))
        files[f"emnist-{variant}-{part}-labels-idx1-ubyte.gz"] = gzip.compress(idx(y + np.uint8(first)))
        found[part] = x
    if zipped:
        put(folder / "emnist", "gzip.zip", make_zip({f"gzip/{name}": content for name, content in files.items()}))
    else:
        for name, content in files.items():
            put(folder / "emnist", name, content)
    return found


def make_zip(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def make_tar(members: list[tuple[tarfile.TarInfo | str, bytes]]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for entry, content in members:
            info = tarfile.TarInfo(entry) if isinstance(entry, str) else entry
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def cifar_batch(rows: int, seed: int) -> bytes:
    records = np.random.default_rng(seed).integers(0, 256, (rows, 3073), dtype=np.uint8)
    records[:, 0] = np.arange(rows) % 10
    return records.tobytes()


def cifar10(folder: Path, batches: int = 5) -> None:
    members = [(f"cifar-10-batches-bin/data_batch_{n + 1}.bin", cifar_batch(20, n)) for n in range(batches)]
    members += [
        ("cifar-10-batches-bin/test_batch.bin", cifar_batch(10, 9)),
        ("cifar-10-batches-bin/readme.html", b"hi"),
    ]
    put(folder / "cifar10", "cifar-10-binary.tar.gz", make_tar(members))


def cifar100_rows(rows: int, seed: int) -> np.ndarray:
    """Coarse label, fine label, pixels."""
    records = np.random.default_rng(seed).integers(0, 256, (rows, 3074), dtype=np.uint8)
    records[:, 1] = np.arange(rows) * 7 % 100
    records[:, 0] = records[:, 1] // 5
    return records


def old_text(value: bytes) -> bytes:
    """A string as Python 2 wrote it."""
    return (b"U" + bytes([len(value)]) if len(value) < 256 else b"T" + struct.pack("<i", len(value))) + value


def old_array(values: np.ndarray, kind: bytes) -> bytes:
    """What Python 2 wrote for an array: a call of a name, then version, shape, type, order and bytes as its state."""
    shape = b"(" + b"".join(b"M" + struct.pack("<H", n) for n in values.shape) + b"t"
    dtype = b"cnumpy\ndtype\n" + old_text(kind) + b"K\x00K\x01\x87Rq\x05(K\x03" + old_text(b"|")
    dtype += b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    made = b"cnumpy.core.multiarray\n_reconstruct\nq\x01cnumpy\nndarray\nK\x00\x85" + old_text(b"b") + b"\x87R"
    return made + b"(K\x01" + shape + dtype + b"\x89" + old_text(values.tobytes()) + b"tb"


def cifar100_described(records: np.ndarray) -> bytes:
    """The dict that the archive for Python holds."""
    labels = [b"](" + b"".join(b"K" + bytes([n]) for n in records[:, index].tolist()) + b"e" for index in (0, 1)]
    names = b"](" + b"".join(old_text(f"image_{n}.png".encode()) for n in range(len(records))) + b"e"
    content = old_text(b"filenames") + names + old_text(b"batch_label") + old_text(b"training batch 1 of 1")
    content += old_text(b"fine_labels") + labels[1] + old_text(b"coarse_labels") + labels[0]
    return b"\x80\x02}q\x01(" + content + old_text(b"data") + old_array(records[:, 2:], b"u1") + b"u."


def cifar100(folder: Path, form: str = "binary") -> None:
    parts = {"train": cifar100_rows(40, 0), "test": cifar100_rows(20, 1)}
    ending = ".bin" if form == "binary" else ""
    members = [
        (f"cifar-100-{form}/{name}{ending}", rows.tobytes() if form == "binary" else cifar100_described(rows))
        for name, rows in parts.items()
    ]
    members.append((f"cifar-100-{form}/meta", b"names of the classes"))
    put(folder / "cifar100", f"cifar-100-{form}.tar.gz", make_tar(members))


def sentiment140(folder: Path, more: bytes = b"") -> None:
    """Ann tweets five times (not in the order of time), Bob twice, Zoe once; one byte is not UTF-8."""
    rows = [(4, 10, "ann", "Good day, it's good"), (0, 30, "bob", "bad BAD day"), (4, 12, "ann", 'He said ""good""')]
    rows += [(0, 11, "ann", "bad"), (0, 40, "zoe", "caf\xe9 bad."), (4, 14, "ann", "zebra day"), (4, 31, "bob", "!")]
    rows += [(0, 13, "ann", "good good good good good")]
    date = "Mon Apr 06 22:19:45 PDT 2009"
    text = "".join(f'"{y}","{n}","{date}","NO_QUERY","{user}","{said}"\n' for y, n, user, said in rows)
    members = {"training.1600000.processed.noemoticon.csv": text.encode("latin-1") + more}
    archive = make_zip({**members, "testdata.manual.2009.06.14.csv": b'"2","3","d","q","u","t"\n'})
    put(folder / "sentiment140", "trainingandtestdata.zip", archive)


def drawing(seed: int) -> bytes:
    pixels = np.full((105, 105), 255, dtype=np.uint8)
    pixels[20 + seed % 60 : 40 + seed % 60, 10:30] = 0
    stream = io.BytesIO()
    Image.fromarray(pixels).convert("1").save(stream, "PNG")
    return stream.getvalue()


def omniglot(folder: Path) -> None:
    """Three alphabets of two, three and four characters; background and evaluation zips."""
    number = 0
    for archive, alphabets in (("background", {"Alpha": 2, "Beta": 3}), ("evaluation", {"Gamma": 4})):
        members = {}
        for alphabet, characters in alphabets.items():
            for character in range(1, characters + 1):
                number += 1
                for drawer in range(1, 21):
                    name = f"images_{archive}/{alphabet}/character{character:02}/{number:04}_{drawer:02}.png"
                    members[name] = drawing(number * 20 + drawer)
        put(folder / "omniglot", f"images_{archive}.zip", make_zip(members))


def femnist_json(folder: Path) -> None:
    """Two LEAF shards for each part: writers a and b train and test, writer c tests only."""
    rng = np.random.default_rng(0)
    for part, shards in (("train", [{"a": 6}, {"b": 4}]), ("test", [{"a": 2, "b": 1}, {"c": 3}])):
        for number, writers in enumerate(shards):
            data = {
                name: {"x": (rng.integers(0, 256, (rows, 784)) / 255).tolist(), "y": rng.integers(0, 62, rows).tolist()}
                for name, rows in writers.items()
            }
            content = {"users": list(writers), "num_samples": list(writers.values()), "user_data": data}
            put(folder / "femnist" / part, f"all_data_{number}.json", json.dumps(content).encode())


def lines(rows: list[dict]) -> bytes:
    return gzip.compress("\n".join(json.dumps(row) for row in rows).encode())


def shakespeare(folder: Path) -> None:
    speeches = [
        {"play": "hamlet", "role": "HAMLET", "text": "To be, or not to be: that is the question." * 10},
        {"play": "hamlet", "role": "GHOST", "text": "Mark me."},
        {"play": "hamlet", "role": "", "text": "A slip of mark-up."},
        {"play": "macbeth", "role": "HAMLET", "text": "Another play's role of the same name; \u00e9." * 12},
        {"play": "hamlet", "role": "HAMLET", "text": "The end." * 5},
    ]
    put(folder / "shakespeare", "shakespeare_speeches.jsonl.gz", lines(speeches))


def stackoverflow(folder: Path) -> None:
    rows = []
    for user, count in ((7, 10), (3, 5), (9, 1), (4, 2)):
        for number in range(count):
            tags = ["c#", ".net"] if number % 2 else ["python"]
            tags = ["rare"] if user == 9 else tags
            title = f"How to use C# and .NET {number}?" if number % 2 else "Python lists"
            last = number == count - 1 and user == 7
            rows.append({"question_id": user * 100 + number, "user_id": user, "created": f"2010-01-{1 + number:02}",
                         "title": "only the test question says zebra" if last else title, "tags": tags})  # fmt: skip
    rows.reverse()  # the file is in no order of use
    put(folder / "stackoverflow", "so_questions_title_tags_users.jsonl.gz", lines(rows))


def sst2(folder: Path, zipped: bool = False) -> None:
    train = "sentence\tlabel\n" + "good films \t1\nbad film, unwatchable \t0\n" * 10
    dev = "sentence\tlabel\na good film\t1\nzzz\t0\n"
    put(folder / "bert_tiny", "vocab.txt", "\n".join(VOCABULARY).encode())
    if zipped:
        put(folder / "sst2", "SST-2.zip", make_zip({"SST-2/train.tsv": train.encode(), "SST-2/dev.tsv": dev.encode()}))
    else:
        put(folder / "sst2", "train.tsv.gz", gzip.compress(train.encode()))
        put(folder / "sst2", "dev.tsv.gz", gzip.compress(dev.encode()))


def planetoid(folder: Path, name: str = "cora", **changes: np.ndarray) -> None:
    """Two rings of six nodes with one bridge; four features, three classes, node 11 without a class."""
    ring = [(a, (a + 1) % 6) for a in range(6)]
    edges = np.array([*ring, *[(a + 6, b + 6) for a, b in ring], (0, 6)], dtype=np.int32)
    arrays = {
        "feat_data": np.ones(12, dtype=np.float32),
        "feat_indices": (np.arange(12) % 4).astype(np.int16),
        "feat_indptr": np.arange(13, dtype=np.int32),
        "feat_shape": np.array([12, 4], dtype=np.int32),
        "labels": np.array([*(np.arange(11) % 3), -1], dtype=np.int8),
        "edges": np.sort(edges, axis=1),
        "train_idx": np.array([0, 1, 6, 7], dtype=np.int32),
        "val_idx": np.array([2, 8], dtype=np.int32),
        "test_idx": np.array([3, 9], dtype=np.int32),
    }
    (folder / "planetoid").mkdir(parents=True, exist_ok=True)
    np.savez(folder / "planetoid" / f"{name}.npz", **{**arrays, **changes})


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def owned(data):
    """Every row with its owner and part, checked to have one of each."""
    rows = [data.positions(client, part) for client in range(len(data)) for part in ("train", "validation", "test")]
    everything = np.concatenate(rows)
    assert len(np.unique(everything)) == len(everything)
    return everything


HTML = b"<!DOCTYPE html><html><body>404 Not Found</body></html>"


GOOD_IDX = gzip.compress(idx(np.arange(60, dtype=np.uint8).reshape(5, 3, 4)))


def npy(array, allow=False):
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=allow)
    return stream.getvalue()
