//! What SoftRNICs ask each other (docs/wire-extensions.md).

use softrnic_wire::{Capabilities, MAD_LEN, Mad, Qpn, REORDER_WINDOW, VendorAttribute, VendorMad};

use super::{Player, Result, deviation};
use crate::message;
use crate::packet::{self, describe};
use crate::target::{Received, Trouble};

/// The transaction of the questions.
const TRANSACTION: u64 = 0x736F_6674;

impl Player<'_> {
    /// Asks the NIC what it can do for a queue pair, and says that the peer recovers selectively.
    pub(super) fn ask_capabilities(&mut self, qp: &str) -> Result {
        let numbers = self.names.qp(qp)?;
        let capabilities = Capabilities {
            version: Capabilities::VERSION,
            selective_recovery: true,
            paths: false,
            reorder_window: REORDER_WINDOW as u16,
        };
        let question = VendorMad {
            answers: false,
            to: Qpn::new(numbers.ours),
            from: Qpn::new(numbers.peer),
            attribute: VendorAttribute::Capabilities(capabilities),
        };
        let mut bytes = [0; MAD_LEN];
        question.emit_mad(TRANSACTION, &mut bytes);
        self.target.inject(message::datagram(&bytes))
    }

    /// The NIC says that it recovers selectively as well. One that does not answer is none that a script could go on with.
    pub(super) fn expect_capabilities(&mut self, qp: &str) -> Result {
        let numbers = self.names.qp(qp)?;
        let answer = loop {
            let received = match self.target.next_message(None) {
                Err(Trouble::Deviation(_)) => {
                    return Err(Trouble::NotApplicable(
                        "the peer is no SoftRNIC that says what it can do".into(),
                    ));
                }
                received => received?,
            };
            let Some((transaction, told)) = vendor(&received) else {
                return deviation(format!("sent: {}", describe(&received.bytes)));
            };
            // Its own questions are none of the script's.
            if told.answers {
                break (transaction, told);
            }
        };
        let (transaction, told) = answer;
        let (to, from) = (told.to.get(), told.from.get());
        if (to, from, transaction) != (numbers.peer, numbers.ours, TRANSACTION) {
            return deviation(format!(
                "the answer is to {to:#x} from {from:#x}, transaction {transaction:#x}"
            ));
        }
        match told.attribute {
            VendorAttribute::Capabilities(theirs) if theirs.selective_recovery => Ok(()),
            VendorAttribute::Capabilities(_) => {
                Err(Trouble::NotApplicable("the peer does not recover selectively".into()))
            }
            other @ VendorAttribute::Status(_) => {
                deviation(format!("the answer is about its {}", other.name()))
            }
        }
    }
}

/// The datagram between SoftRNICs in a packet to QP 1, with its transaction.
pub(super) fn vendor(received: &Received) -> Option<(u64, VendorMad)> {
    let (_, _, payload) = packet::take_apart(&received.bytes)?;
    let mad = Mad::read(payload)?;
    Some((mad.transaction_id, mad.vendor()?))
}
