//! The bytes of each extended header, written out once more from IBTA 9.3 and its annexes.

use softrnic_wire::*;

/// The bytes of `header` in a packet with `body`; `None` when such a packet has none.
pub fn of(header: Header, body: &Body) -> Option<Vec<u8>> {
    let op = body.op();
    Some(match header {
        Header::Bth => return None,
        Header::XrcEth => match body {
            Body::Xrc(xrc) => be(xrc.srqn()?.get(), 4),
            _ => return None,
        },
        Header::Deth => match body {
            Body::Ud { deth, .. } => [be(deth.qkey.0, 4), be(deth.src_qpn.get(), 4)].concat(),
            _ => return None,
        },
        Header::Reth => {
            let reth = op?.reth()?;
            [be(reth.va, 8), be(reth.rkey.0, 4), be(reth.dma_len, 4)].concat()
        }
        Header::Aeth => {
            let aeth = match body {
                Body::SelectiveAck(aeth) => *aeth,
                _ => op?.aeth()?,
            };
            [vec![aeth.syndrome.byte()], be(aeth.msn.get(), 3)].concat()
        }
        Header::AtomicEth => match op? {
            Op::CompareSwap(a) | Op::FetchAdd(a) => {
                [be(a.va, 8), be(a.rkey.0, 4), be(a.swap_or_add, 8), be(a.compare, 8)].concat()
            }
            _ => return None,
        },
        Header::AtomicAckEth => match op? {
            Op::AtomicAcknowledge(_, original) => be(original, 8),
            _ => return None,
        },
        Header::ImmDt => match body {
            Body::Ud { imm, .. } => (*imm)?.0.to_vec(),
            _ => op?.imm()?.0.to_vec(),
        },
        Header::Ieth => match op? {
            Op::SendLast(SendTail::Inv(rkey)) | Op::SendOnly(SendTail::Inv(rkey)) => be(rkey.0, 4),
            _ => return None,
        },
        Header::Feth => match op? {
            Op::Flush(feth, _) => {
                let selectivity = match feth.selectivity {
                    Selectivity::Range => 0x00,
                    Selectivity::Region => 0x10,
                    Selectivity::Reserved2 => 0x20,
                    Selectivity::Reserved3 => 0x30,
                };
                vec![0, 0, 0, selectivity + feth.placement.bits()]
            }
            _ => return None,
        },
    })
}

/// The last `len` bytes of `value`, most significant first.
fn be(value: impl Into<u64>, len: usize) -> Vec<u8> {
    value.into().to_be_bytes()[8 - len..].to_vec()
}
