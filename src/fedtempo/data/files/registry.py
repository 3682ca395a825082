"""What there is to load: files, pages, licences, citations, natural clients."""

from __future__ import annotations

from dataclasses import dataclass

from fedtempo.data.files import published
from fedtempo.data.files.published import File


@dataclass(frozen=True)
class Entry:
    """One data set. Each of `ways` names files that suffice to load it; the first that is complete is read."""

    folder: str
    files: tuple[File, ...]
    ways: tuple[tuple[str, ...], ...]
    page: str
    licence: str
    citation: str
    clients: str
    about: str

    def file(self, name: str) -> File:
        """The file of this name; a file without a catalogue line has no pinned sum."""
        return next((f for f in self.files if f.name == name), File(name))

    @property
    def downloads(self) -> tuple[File, ...]:
        """The files that `fedtempo data get` fetches: those of the first way that has an address for each."""
        for way in self.ways:
            if all(self.file(name).url for name in way):
                return tuple(map(self.file, way))
        return ()


CATALOGUE: dict[str, Entry] = {
    "digits": Entry(
        folder="digits",
        files=(),
        ways=(),
        page="https://archive.ics.uci.edu/dataset/80",
        licence="CC BY 4.0 (UCI Machine Learning Repository)",
        citation="Alpaydin and Kaynak, UCI Optical Recognition of Handwritten Digits (1998)",
        clients="none",
        about="1,797 8x8 images of 10 digits, part of the installation",
    ),
    "mnist": Entry(
        folder="mnist",
        files=published.MNIST,
        ways=(tuple(file.name for file in published.MNIST), published.IDX_NAMES),
        page="http://yann.lecun.com/exdb/mnist/",
        licence="CC BY-SA 3.0 as commonly given (MNIST); BSD-style (QMNIST labels)",
        citation="LeCun, Cortes, Burges, MNIST (1998); Yadav and Bottou, Cold Case: the Lost MNIST Digits (2019)",
        clients="writers (QMNIST): 539 in train, 297 in test",
        about="60,000 / 10,000 28x28 images of 10 digits",
    ),
    "fashion_mnist": Entry(
        folder="fashion_mnist",
        files=published.FASHION_MNIST,
        ways=(published.IDX_NAMES,),
        page="https://github.com/zalandoresearch/fashion-mnist",
        licence="MIT (Zalando SE)",
        citation="Xiao, Rasul, Vollgraf, Fashion-MNIST (2017)",
        clients="none",
        about="60,000 / 10,000 28x28 images of 10 kinds of clothing",
    ),
    "emnist": Entry(
        folder="emnist",
        files=published.EMNIST,
        ways=(("gzip.zip",), ("emnist-*-idx*-ubyte.gz",)),
        page="https://www.nist.gov/itl/products-and-services/emnist-dataset",
        licence="public domain (NIST)",
        citation="Cohen et al., EMNIST: Extending MNIST to handwritten letters (2017)",
        clients="none",
        about="28x28 handwritten characters; byclass: 814,255 images of 62 classes",
    ),
    "omniglot": Entry(
        folder="omniglot",
        files=published.OMNIGLOT,
        ways=(tuple(file.name for file in published.OMNIGLOT),),
        page="https://github.com/brendenlake/omniglot",
        licence="MIT",
        citation="Lake, Salakhutdinov, Tenenbaum, Human-level concept learning (2015)",
        clients="50 alphabets",
        about="32,460 drawings of 1,623 characters, read as 28x28",
    ),
    "cifar10": Entry(
        folder="cifar10",
        files=published.CIFAR10,
        ways=(("cifar-10-binary.tar.gz",), ("cifar-10-binary-subset.tar.gz",)),
        page="https://www.cs.toronto.edu/~kriz/cifar.html",
        licence="not stated by the authors",
        citation="Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009)",
        clients="none",
        about="50,000 / 10,000 32x32 colour images of 10 classes (the subset archive: 10,000 / 2,000)",
    ),
    "femnist": Entry(
        folder="femnist",
        files=published.FEMNIST,
        ways=(("train/*.json", "test/*.json"), ("femnist_leaf_sample.npz",)),
        page="https://github.com/TalwalkarLab/leaf",
        licence="public domain (NIST SD19); BSD-2-Clause (LEAF)",
        citation="Caldas et al., LEAF: A Benchmark for Federated Settings (2018)",
        clients="writers (sample: 105 with training data, 79 with test data only)",
        about="28x28 handwritten characters of 62 classes (the sample: 18,796 images)",
    ),
    "shakespeare": Entry(
        folder="shakespeare",
        files=published.SHAKESPEARE,
        ways=(("shakespeare_speeches.jsonl.gz",),),
        page="https://shakespeare.mit.edu/",
        licence="public domain (Moby Shakespeare)",
        citation="Shakespeare, complete plays; Caldas et al., LEAF (2018) for the task",
        clients="(play, role): 1,346",
        about="30,943 speeches of 37 plays, 4.3 million characters",
    ),
    "tinyshakespeare": Entry(
        folder="shakespeare",
        files=published.TINYSHAKESPEARE,
        ways=(("input.txt",), ("tinyshakespeare_input.txt.gz",)),
        page="https://github.com/karpathy/char-rnn",
        licence="public domain",
        citation="Karpathy, char-rnn (2015)",
        clients="roles, all plays together",
        about="1.1 million characters of Shakespeare",
    ),
    "stackoverflow": Entry(
        folder="stackoverflow",
        files=published.STACKOVERFLOW,
        ways=(("so_questions_title_tags_users.jsonl.gz",),),
        page="https://archive.org/details/stackexchange",
        licence="CC BY-SA 2.5 / 3.0 / 4.0 by date of post",
        citation="Stack Exchange, Stack Overflow questions; Reddi et al. (2021) for the task",
        clients="users: 2,531",
        about="22,739 question titles with tags (a sample, not random)",
    ),
    "sst2": Entry(
        folder="sst2",
        files=published.SST2,
        ways=(("SST-2.zip", "vocab.txt"), ("train.tsv.gz", "dev.tsv.gz", "vocab.txt")),
        page="https://gluebenchmark.com",
        licence="not stated (GLUE); offered for research",
        citation="Socher et al. (2013); Wang et al., GLUE (2019); vocabulary: Devlin et al., BERT (2019)",
        clients="none",
        about="67,349 / 872 film-review phrases, positive or negative",
    ),
    "pubmed": Entry(
        folder="planetoid",
        files=published.PUBMED,
        ways=(("pubmed.npz",), tuple(file.name for file in published.PUBMED[1:])),
        page="https://github.com/kimiyoung/planetoid",
        licence="MIT (planetoid repository); LINQS data, free for research",
        citation="Namata et al., Query-driven Active Surveying (2012); Yang et al., Planetoid (2016)",
        clients="Louvain communities",
        about="19,717 papers, 44,324 links, 500 features, 3 classes",
    ),
    "cora": Entry(
        folder="planetoid",
        files=published.CORA,
        ways=(("cora.npz",), tuple(file.name for file in published.CORA[1:])),
        page="https://github.com/kimiyoung/planetoid",
        licence="MIT (planetoid repository); LINQS data, free for research",
        citation="Sen et al., Collective Classification in Network Data (2008); Yang et al., Planetoid (2016)",
        clients="Louvain communities",
        about="2,708 papers, 5,278 links, 1,433 features, 7 classes",
    ),
    "citeseer": Entry(
        folder="planetoid",
        files=published.CITESEER,
        ways=(("citeseer.npz",),),
        page="https://github.com/kimiyoung/planetoid",
        licence="MIT (planetoid repository); LINQS data, free for research",
        citation="Sen et al., Collective Classification in Network Data (2008); Yang et al., Planetoid (2016)",
        clients="Louvain communities",
        about="3,327 papers, 4,552 links, 3,703 features, 6 classes",
    ),
    "synthetic": Entry(
        folder="synthetic",
        files=(),
        ways=(),
        page="https://github.com/TalwalkarLab/leaf",
        licence="none needed: generated",
        citation="Li et al., FedProx (2020), synthetic(alpha, beta)",
        clients="generated",
        about="60 features, 10 classes, from a seed",
    ),
    "quadratic": Entry(
        folder="quadratic",
        files=(),
        ways=(),
        page="https://arxiv.org/abs/2305.09628",
        licence="none needed: generated",
        citation="Mills, Hu, Min, Faster Federated Learning with Decaying Number of Local SGD Steps (2023)",
        clients="one number each",
        about="z on [1, 3] with density proportional to z^-1/2",
    ),
}
