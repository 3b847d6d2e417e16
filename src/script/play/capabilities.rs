//! What SoftRNICs ask each other (docs/wire-extensions.md).

use softrnic_wire::{Capabilities, MAD_LEN, Mad, Qpn, REORDER_WINDOW, VendorAttribute, VendorMad};

use super::{Player, Result, deviation};
use crate::message;
use crate::packet::{self, describe};
use crate::statement::Agreed;
use crate::target::{Received, Trouble};

/// The transaction of the questions.
const TRANSACTION: u64 = 0x736F_6674;

impl Player<'_> {
    /// Asks the NIC what it can do for a queue pair, and says that the peer recovers selectively, and perhaps that it takes
    /// packets from many ports.
    pub(super) fn ask_capabilities(&mut self, told: &Agreed) -> Result {
        self.say(told, false, TRANSACTION)
    }

    /// Answers the last question of the NIC in the same way.
    pub(super) fn answer(&mut self, told: &Agreed) -> Result {
        self.say(told, true, self.question)
    }

    fn say(&mut self, told: &Agreed, answers: bool, transaction: u64) -> Result {
        let numbers = self.names.qp(&told.qp)?;
        let capabilities = Capabilities {
            version: Capabilities::VERSION,
            selective_recovery: true,
            paths: told.paths,
            reorder_window: REORDER_WINDOW as u16,
        };
        let datagram = VendorMad {
            answers,
            to: Qpn::new(numbers.ours),
            from: Qpn::new(numbers.peer),
            attribute: VendorAttribute::Capabilities(capabilities),
        };
        let mut bytes = [0; MAD_LEN];
        datagram.emit_mad(transaction, &mut bytes);
        self.target.inject(message::datagram(&bytes))
    }

    /// The NIC says the same. One that does not answer is none that a script could go on with.
    pub(super) fn expect_capabilities(&mut self, wanted: &Agreed) -> Result {
        let transaction = loop {
            let (transaction, answers) = self.heard(wanted)?;
            // Its own questions are none of the script's.
            if answers {
                break transaction;
            }
        };
        if transaction != TRANSACTION {
            return deviation(format!("the answer is to transaction {transaction:#x}"));
        }
        Ok(())
    }

    /// The NIC asks the peer.
    pub(super) fn expect_question(&mut self, wanted: &Agreed) -> Result {
        let (transaction, answers) = self.heard(wanted)?;
        if answers {
            return deviation("it answers");
        }
        self.question = transaction;
        Ok(())
    }

    /// What the NIC says next about a queue pair: the transaction, and whether it answers.
    fn heard(&mut self, wanted: &Agreed) -> Result<(u64, bool)> {
        let numbers = self.names.qp(&wanted.qp)?;
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
        let (to, from) = (told.to.get(), told.from.get());
        if (to, from) != (numbers.peer, numbers.ours) {
            return deviation(format!("it is to {to:#x} from {from:#x}"));
        }
        match told.attribute {
            VendorAttribute::Capabilities(theirs) if !theirs.selective_recovery => {
                Err(Trouble::NotApplicable("the peer does not recover selectively".into()))
            }
            VendorAttribute::Capabilities(theirs) if wanted.paths && !theirs.paths => {
                Err(Trouble::NotApplicable("the peer has one path".into()))
            }
            VendorAttribute::Capabilities(_) => Ok((transaction, told.answers)),
            other @ VendorAttribute::Status(_) => deviation(format!("it is about its {}", other.name())),
        }
    }
}

/// The datagram between SoftRNICs in a packet to QP 1, with its transaction.
pub(super) fn vendor(received: &Received) -> Option<(u64, VendorMad)> {
    let (_, _, payload) = packet::take_apart(&received.bytes)?;
    let mad = Mad::read(payload)?;
    Some((mad.transaction_id, mad.vendor()?))
}
