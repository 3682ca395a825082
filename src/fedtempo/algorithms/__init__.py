"""Algorithms, each a function that returns a frozen `Algorithm`."""

from collections.abc import Callable

from fedtempo.algorithms.adaptive_decay import adaptive_decay as adaptive_decay
from fedtempo.algorithms.afl import afl as afl
from fedtempo.algorithms.algorithm import Algorithm as Algorithm
from fedtempo.algorithms.algorithm import full_copy as full_copy
from fedtempo.algorithms.algorithm import predict_personal as predict_personal
from fedtempo.algorithms.algorithm import predict_shared as predict_shared
from fedtempo.algorithms.algorithm import predict_together as predict_together
from fedtempo.algorithms.apfl import apfl as apfl
from fedtempo.algorithms.clip_then_decay import clip_then_decay as clip_then_decay
from fedtempo.algorithms.delta_sgd import delta_sgd as delta_sgd
from fedtempo.algorithms.diloco import diloco as diloco
from fedtempo.algorithms.ditto import ditto as ditto
from fedtempo.algorithms.fedadagrad import fedadagrad as fedadagrad
from fedtempo.algorithms.fedadam import fedadam as fedadam
from fedtempo.algorithms.fedadamw import fedadamw as fedadamw
from fedtempo.algorithms.fedala import fedala as fedala
from fedtempo.algorithms.fedavg import fedavg as fedavg
from fedtempo.algorithms.fedavg import fedsgd as fedsgd
from fedtempo.algorithms.fedavg import local_only as local_only
from fedtempo.algorithms.fedavg import reptile as reptile
from fedtempo.algorithms.fedavgm import fedavgm as fedavgm
from fedtempo.algorithms.fedbabu import fedbabu as fedbabu
from fedtempo.algorithms.fedbn import fedbn as fedbn
from fedtempo.algorithms.fedcm import fedcm as fedcm
from fedtempo.algorithms.feddecay import feddecay as feddecay
from fedtempo.algorithms.feddecsps import feddecsps as feddecsps
from fedtempo.algorithms.feddyn import feddyn as feddyn
from fedtempo.algorithms.fedem import fedem as fedem
from fedtempo.algorithms.fedex_lora import fedex_lora as fedex_lora
from fedtempo.algorithms.fedexp import fedexp as fedexp
from fedtempo.algorithms.fedhyper_client import fedhyper_client as fedhyper_client
from fedtempo.algorithms.fedhyper_global import fedhyper_global as fedhyper_global
from fedtempo.algorithms.fedhyper_server import fedhyper_server as fedhyper_server
from fedtempo.algorithms.fedinit import fedinit as fedinit
from fedtempo.algorithms.fedlesam import fedlesam as fedlesam
from fedtempo.algorithms.fedmuon import fedmuon as fedmuon
from fedtempo.algorithms.fednar import fednar as fednar
from fedtempo.algorithms.fednova import fednova as fednova
from fedtempo.algorithms.fedper import fedper as fedper
from fedtempo.algorithms.fedprox import fedprox as fedprox
from fedtempo.algorithms.fedrecon import fedrecon as fedrecon
from fedtempo.algorithms.fedrecon import fedrecon_stateful as fedrecon_stateful
from fedtempo.algorithms.fedrep import fedrep as fedrep
from fedtempo.algorithms.fedrod import fedrod as fedrod
from fedtempo.algorithms.fedsam import fedsam as fedsam
from fedtempo.algorithms.fedspeed import fedspeed as fedspeed
from fedtempo.algorithms.fedsps import fedsps as fedsps
from fedtempo.algorithms.fedyogi import fedyogi as fedyogi
from fedtempo.algorithms.fomaml import fomaml as fomaml
from fedtempo.algorithms.lg_fedavg import lg_fedavg as lg_fedavg
from fedtempo.algorithms.lora import fedsa_lora as fedsa_lora
from fedtempo.algorithms.lora import ffa_lora as ffa_lora
from fedtempo.algorithms.loss_weighted import loss_weighted as loss_weighted
from fedtempo.algorithms.moon import moon as moon
from fedtempo.algorithms.named import named as named
from fedtempo.algorithms.pfedme import pfedme as pfedme
from fedtempo.algorithms.pflego import pflego as pflego
from fedtempo.algorithms.q_fedavg import q_fedavg as q_fedavg
from fedtempo.algorithms.q_fedsgd import q_fedsgd as q_fedsgd
from fedtempo.algorithms.scaffold import scaffold as scaffold
from fedtempo.algorithms.server_decay import server_decay as server_decay
from fedtempo.algorithms.stop_early import stop_early as stop_early
from fedtempo.algorithms.with_head import with_head as with_head
from fedtempo.algorithms.with_server import with_server as with_server
from fedtempo.algorithms.work_normalised import work_normalised as work_normalised
from fedtempo.server.step import Server as Server

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

__all__ = list(IN_FILES)
__all__ += ["ALGORITHMS", "Algorithm", "Server", "full_copy", "named"]
__all__ += ["predict_personal", "predict_shared", "predict_together"]
