"""The published files: names, sizes, SHA-256 sums, addresses.

Where a file is known in two versions (the official archive and a sample or a repacked copy), both sums are listed, the
official one first; the size is the official one's.
"""

from __future__ import annotations

from dataclasses import dataclass

_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_QMNIST = "https://raw.githubusercontent.com/facebookresearch/qmnist/master/"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_OMNIGLOT = "https://github.com/brendenlake/omniglot/raw/master/python/"
_BERT = "https://huggingface.co/google/bert_uncased_L-2_H-128_A-2/resolve/main/"
_PLANETOID = "https://github.com/kimiyoung/planetoid/raw/master/data/"
_CHAR_RNN = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/"


@dataclass(frozen=True)
class File:
    """One file: its name on disk, the sums it may have, and where it is downloaded from (None: nowhere as one file)."""

    name: str
    sha256: tuple[str, ...] = ()
    size: int = 0
    url: str | None = None
    folder: str | None = None
    """The folder below the data directory, where it is not the data set's own."""


MNIST = (
    File(
        "train-images-idx3-ubyte.gz",
        ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",),
        9912422,
        _MNIST + "train-images-idx3-ubyte.gz",
    ),
    File(
        "train-labels-idx1-ubyte.gz",
        ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",),
        28881,
        _MNIST + "train-labels-idx1-ubyte.gz",
    ),
    File(
        "t10k-images-idx3-ubyte.gz",
        ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",),
        1648877,
        _MNIST + "t10k-images-idx3-ubyte.gz",
    ),
    File(
        "t10k-labels-idx1-ubyte.gz",
        ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",),
        4542,
        _MNIST + "t10k-labels-idx1-ubyte.gz",
    ),
    File(
        "qmnist-train-labels-idx2-int.gz",
        ("2c05dc77f6b916b38e455e97ab129a42a444f3dbef09b278a366f82904e0dd9f",),
        463024,
        _QMNIST + "qmnist-train-labels-idx2-int.gz",
    ),
    File(
        "qmnist-test-labels-idx2-int.gz",
        ("9fbcbe594c3766fdf4f0b15c5165dc0d1e57ac604e01422608bb72c906030d06",),
        526800,
        _QMNIST + "qmnist-test-labels-idx2-int.gz",
    ),
)
FASHION_MNIST = (
    File(
        "train-images-idx3-ubyte.gz",
        ("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",),
        26421880,
        _FASHION + "train-images-idx3-ubyte.gz",
    ),
    File(
        "train-labels-idx1-ubyte.gz",
        ("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",),
        29515,
        _FASHION + "train-labels-idx1-ubyte.gz",
    ),
    File(
        "t10k-images-idx3-ubyte.gz",
        ("346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",),
        4422102,
        _FASHION + "t10k-images-idx3-ubyte.gz",
    ),
    File(
        "t10k-labels-idx1-ubyte.gz",
        ("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",),
        5148,
        _FASHION + "t10k-labels-idx1-ubyte.gz",
    ),
)
IDX_NAMES = tuple(file.name for file in FASHION_MNIST)
OMNIGLOT = (
    File(
        "images_background.zip",
        (
            "ad41ab679c8b5d90b271ef46be6987cc81211774a695c29dcc5367b2b26ee640",
            "8e569bd8878efa365e2418d51cf9b080951424f998453216e805c1f47d88f80d",
        ),
        9464212,
        _OMNIGLOT + "images_background.zip",
    ),
    File(
        "images_evaluation.zip",
        (
            "1f61a8f3366785b057fc117d9228e78a16e3d976c8953b2a10fcc74cf0609cee",
            "1125ecdd71b1b9f77bfe32c057642e3fab37ce830c7f3238d2ab4ed3a418a58b",
        ),
        6462886,
        _OMNIGLOT + "images_evaluation.zip",
    ),
)
SST2 = (
    File(
        "SST-2.zip",
        ("d67e16fb55739c1b32cdce9877596db1c127dc322d93c082281f64057c16deaa",),
        7439277,
        "https://dl.fbaipublicfiles.com/glue/data/SST-2.zip",
    ),
    File("train.tsv.gz", ("1c4843303462f8f93e006ff618a9e61d207468cafd030046d7d7fd6b78af342b",), 1443733),
    File("dev.tsv.gz", ("19553efc6f7bac0b7fdd37d4e29dc37c15e9e779767249a16f857fbfcedb23fa",), 38131),
    File(
        "vocab.txt",
        ("07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",),
        231508,
        _BERT + "vocab.txt",
        folder="bert_tiny",
    ),
)
EMNIST = (
    File(
        "gzip.zip",
        ("fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e",),
        561753746,
        "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
    ),
)
CIFAR10 = (
    File(
        "cifar-10-binary.tar.gz",
        ("c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",),
        170052171,
        "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    ),
    File(
        "cifar-10-binary-subset.tar.gz", ("eb9c0227c9fc9e4af2a8f58b787b94830506d69bac1fb2150115f440e154356e",), 33908307
    ),
)
FEMNIST = (
    File("femnist_leaf_sample.npz", ("8c510f83356edd405adb20f1c95e114be2c7d67b3aa215fb58f1146ffc50fb22",), 2119351),
)
SHAKESPEARE = (
    File(
        "shakespeare_speeches.jsonl.gz", ("29f57ac26463e3e5848cc38e2642c92eed8a598717de51ecc688935c039724a6",), 2038445
    ),
)
TINYSHAKESPEARE = (
    File(
        "input.txt",
        ("86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",),
        1115394,
        _CHAR_RNN + "input.txt",
    ),
    File("tinyshakespeare_input.txt.gz", ("bed00f18e91cda6838950656f0a95e07e0f4dbe8649a4b959f7602a7e53fbc6e",), 433627),
)
STACKOVERFLOW = (
    File(
        "so_questions_title_tags_users.jsonl.gz",
        ("18d242b00bc1c0cd7995274bbb21a72ad7e3ce85b4f740885bebd98078458a6d",),
        1171540,
    ),
)


def _official_graph(name: str, sha256: str, size: int) -> File:
    return File(f"ind.{name}", (sha256,), size, f"{_PLANETOID}ind.{name}")


PUBMED = (
    File("pubmed.npz", ("831740dc0afe660eef5ef8bbe6f038887481cb5b8e1131d623dbcd121faa7746",), 4526134),
    _official_graph("pubmed.allx", "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e", 7578385),
    _official_graph("pubmed.ally", "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e", 224739),
    _official_graph("pubmed.tx", "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d", 405505),
    _official_graph("pubmed.ty", "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd", 12135),
    _official_graph("pubmed.graph", "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9", 471808),
    _official_graph("pubmed.test.index", "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5", 6000),
)
CORA = (
    File("cora.npz", ("fa192ebb6ce797580ad6e09e675606531c05635860445439e1a7f083296044e7",), 89735),
    _official_graph("cora.allx", "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543", 257305),
    _official_graph("cora.ally", "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71", 47959),
    _official_graph("cora.tx", "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a", 148025),
    _official_graph("cora.ty", "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad", 28135),
    _official_graph("cora.graph", "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d", 59847),
    _official_graph("cora.test.index", "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875", 5000),
)
CITESEER = (File("citeseer.npz", ("e93679c5a9d7b0a9b6e704c32c5f8c8f46184c71dc20421d4a174f498dbf2ca5",), 176755),)
