//! What all queue pairs that talk to one peer address share.

use softrnic_wire::IcrcForm;

use crate::window::{Window, WindowConfig};

/// One peer address.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Bytes in flight to it.
    pub window: Window,
    /// Which form of FLUSH it accepts.
    pub flush: FlushDialect,
}

impl Peer {
    /// A peer that has not yet answered.
    pub fn new(config: WindowConfig) -> Peer {
        Peer { window: Window::new(config), flush: FlushDialect::default() }
    }
}

/// How a peer computes the ICRC of a FLUSH. Kernel rxe covers part of the packet twice, and accepts nothing else
/// ([`softrnic_wire::rxe_flush_icrc`]). So every second attempt uses the form that has not been tried, and the answer
/// shows which one the peer accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlushDialect {
    as_rxe: bool,
}

impl FlushDialect {
    /// The form of a FLUSH that has been sent `attempt` times before.
    pub(crate) fn form(self, attempt: u32) -> IcrcForm {
        if self.as_rxe != (attempt % 2 == 1) { IcrcForm::RxeFlush } else { IcrcForm::Standard }
    }

    /// A FLUSH that had been sent `attempt` times before its last attempt was answered.
    pub(crate) fn on_answer(&mut self, attempt: u32) {
        self.as_rxe = self.form(attempt) == IcrcForm::RxeFlush;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_attempt_uses_the_other_form_until_one_is_answered() {
        let mut dialect = FlushDialect::default();
        assert_eq!(
            [0, 1, 2].map(|attempt| dialect.form(attempt)),
            [IcrcForm::Standard, IcrcForm::RxeFlush, IcrcForm::Standard]
        );
        dialect.on_answer(1);
        assert_eq!(dialect.form(0), IcrcForm::RxeFlush, "the peer is rxe");
        dialect.on_answer(0);
        assert_eq!(dialect.form(0), IcrcForm::RxeFlush);
        dialect.on_answer(1);
        assert_eq!(dialect.form(0), IcrcForm::Standard, "and was replaced");
    }
}
