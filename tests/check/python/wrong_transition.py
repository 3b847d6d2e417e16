"""refused-verb: a QP goes from RESET to RTS at once."""

from pyverbs.enums import (
    IBV_QP_ACCESS_FLAGS, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_STATE, IBV_QPS_INIT, IBV_QPS_RTS,
)  # fmt: skip
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QPAttr

from pair import CORRECT, end, make


here, there = make()
attributes = QPAttr(qp_state=IBV_QPS_INIT if CORRECT else IBV_QPS_RTS, port_num=1)
try:
    here.qp.modify(attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)  # called
except PyverbsRDMAError:
    assert not CORRECT
end(here, there)
