"""Algorithms, each a function that returns a frozen `Algorithm`."""

from collections.abc import Callable

from fedtempo.algorithms.adaptive_decay import adaptive_decay
from fedtempo.algorithms.afl import afl
from fedtempo.algorithms.algorithm import (
    Algorithm,
    full_copy,
    predict_personal,
    predict_shared,
    predict_together,
)
from fedtempo.algorithms.apfl import apfl
from fedtempo.algorithms.clip_then_decay import clip_then_decay
from fedtempo.algorithms.delta_sgd import delta_sgd
from fedtempo.algorithms.diloco import diloco
from fedtempo.algorithms.ditto import ditto
from fedtempo.algorithms.fedadagrad import fedadagrad
from fedtempo.algorithms.fedadam import fedadam
from fedtempo.algorithms.fedadamw import fedadamw
from fedtempo.algorithms.fedala import fedala
from fedtempo.algorithms.fedavg import fedavg, fedsgd, local_only, reptile
from fedtempo.algorithms.fedavgm import fedavgm
from fedtempo.algorithms.fedbabu import fedbabu
from fedtempo.algorithms.fedbn import fedbn
from fedtempo.algorithms.fedcm import fedcm
from fedtempo.algorithms.feddecay import feddecay
from fedtempo.algorithms.feddecsps import feddecsps
from fedtempo.algorithms.feddyn import feddyn
from fedtempo.algorithms.fedem import fedem
from fedtempo.algorithms.fedex_lora import fedex_lora
from fedtempo.algorithms.fedexp import fedexp
from fedtempo.algorithms.fedhyper_client import fedhyper_client
from fedtempo.algorithms.fedhyper_global import fedhyper_global
from fedtempo.algorithms.fedhyper_server import fedhyper_server
from fedtempo.algorithms.fedinit import fedinit
from fedtempo.algorithms.fedlesam import fedlesam
from fedtempo.algorithms.fedmuon import fedmuon
from fedtempo.algorithms.fednar import fednar
from fedtempo.algorithms.fednova import fednova
from fedtempo.algorithms.fedper import fedper
from fedtempo.algorithms.fedprox import fedprox
from fedtempo.algorithms.fedrecon import fedrecon, fedrecon_stateful
from fedtempo.algorithms.fedrep import fedrep
from fedtempo.algorithms.fedrod import fedrod
from fedtempo.algorithms.fedsam import fedsam
from fedtempo.algorithms.fedspeed import fedspeed
from fedtempo.algorithms.fedsps import fedsps
from fedtempo.algorithms.fedyogi import fedyogi
from fedtempo.algorithms.fomaml import fomaml
from fedtempo.algorithms.lg_fedavg import lg_fedavg
from fedtempo.algorithms.lora import fedsa_lora, ffa_lora
from fedtempo.algorithms.loss_weighted import loss_weighted
from fedtempo.algorithms.moon import moon
from fedtempo.algorithms.named import named
from fedtempo.algorithms.pfedme import pfedme
from fedtempo.algorithms.pflego import pflego
from fedtempo.algorithms.q_fedavg import q_fedavg
from fedtempo.algorithms.q_fedsgd import q_fedsgd
from fedtempo.algorithms.scaffold import scaffold
from fedtempo.algorithms.server_decay import server_decay
from fedtempo.algorithms.stop_early import stop_early
from fedtempo.algorithms.with_head import with_head
from fedtempo.algorithms.with_server import with_server
from fedtempo.algorithms.work_normalised import work_normalised
from fedtempo.server.step import Server

ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "fedsgd": fedsgd,
    "fedavg": fedavg,
    "reptile": reptile,
    "fomaml": fomaml,
    "feddecay": feddecay,
    "fedprox": fedprox,
    "scaffold": scaffold,
    "fedavgm": fedavgm,
    "fedadam": fedadam,
    "fedyogi": fedyogi,
    "fedadagrad": fedadagrad,
    "fedexp": fedexp,
    "fednova": fednova,
    "feddyn": feddyn,
    "fedcm": fedcm,
    "fedspeed": fedspeed,
    "diloco": diloco,
    "fedadamw": fedadamw,
    "fedmuon": fedmuon,
    "delta_sgd": delta_sgd,
    "fedsps": fedsps,
    "feddecsps": feddecsps,
    "fedhyper_global": fedhyper_global,
    "fedhyper_server": fedhyper_server,
    "fedhyper_client": fedhyper_client,
    "stop_early": stop_early,
    "fedsam": fedsam,
    "fedlesam": fedlesam,
    "fedinit": fedinit,
    "fednar": fednar,
    "clip_then_decay": clip_then_decay,
    "pflego": pflego,
    "fedper": fedper,
    "fedrep": fedrep,
    "fedbabu": fedbabu,
    "fedrecon": fedrecon,
    "fedrecon_stateful": fedrecon_stateful,
    "ditto": ditto,
    "pfedme": pfedme,
    "fedem": fedem,
    "fedbn": fedbn,
    "local_only": local_only,
    "moon": moon,
    "apfl": apfl,
    "lg_fedavg": lg_fedavg,
    "fedala": fedala,
    "fedrod": fedrod,
    "fedsa_lora": fedsa_lora,
    "ffa_lora": ffa_lora,
    "fedex_lora": fedex_lora,
    "q_fedavg": q_fedavg,
    "q_fedsgd": q_fedsgd,
    "afl": afl,
    "loss_weighted": loss_weighted,
    "work_normalised": work_normalised,
    "adaptive_decay": adaptive_decay,
    "server_decay": server_decay,
}
IN_FILES: dict[str, Callable[..., Algorithm]] = {**ALGORITHMS, "with_server": with_server, "with_head": with_head}
"""What a file names as an algorithm: the methods, and two wrappers that are no methods of their own."""

__all__ = [
    "moon",
    "apfl",
    "lg_fedavg",
    "fedala",
    "fedrod",
    "fedsa_lora",
    "ffa_lora",
    "fedex_lora",
    "q_fedavg",
    "q_fedsgd",
    "afl",
    "loss_weighted",
    "work_normalised",
    "adaptive_decay",
    "server_decay",
    "fednova",
    "feddyn",
    "fedcm",
    "fedspeed",
    "diloco",
    "fedadamw",
    "fedmuon",
    "delta_sgd",
    "fedsps",
    "feddecsps",
    "fedhyper_global",
    "fedhyper_server",
    "fedhyper_client",
    "stop_early",
    "fedsam",
    "fedlesam",
    "fedinit",
    "ALGORITHMS",
    "Algorithm",
    "Server",
    "clip_then_decay",
    "ditto",
    "fedadagrad",
    "fedadam",
    "fedavg",
    "fedavgm",
    "fedbabu",
    "fedbn",
    "feddecay",
    "fedem",
    "fedexp",
    "fednar",
    "fedper",
    "fedprox",
    "fedrecon",
    "fedrecon_stateful",
    "fedrep",
    "fedsgd",
    "fedyogi",
    "fomaml",
    "full_copy",
    "local_only",
    "named",
    "pfedme",
    "pflego",
    "predict_personal",
    "predict_shared",
    "predict_together",
    "reptile",
    "scaffold",
    "with_head",
    "with_server",
]
