//! Datagrams dropped before they reach a QP, counted by reason.

macro_rules! reasons {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal,)*) => {
        /// Why a received datagram was dropped before it reached a QP.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(usize)]
        pub enum DropReason { $($(#[doc = $doc])* $variant,)* }

        impl DropReason {
            /// All reasons, in the order of their numbers.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$variant,)*];

            /// The counter's name in statistics.
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$variant => $name,)* }
            }

            /// What it counts, in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(DropReason::$variant => concat!($($doc),*).trim_ascii(),)* }
            }
        }
    };
}

reasons! {
    /// Too short, unknown opcode, wrong version, or inconsistent lengths.
    Malformed = "drop_malformed",
    /// The ICRC is wrong.
    Icrc = "drop_icrc",
    /// The ICRC matches an IPv4 ID that the sender is not expected to use: damaged, or the first after a change.
    UnexpectedId = "drop_unexpected_id",
    /// P_Key does not match.
    Pkey = "bad_pkey",
    /// For another process of the same address: several packets came as one.
    OtherProcess = "drop_other_process",
    /// No QP has this number.
    UnknownQp = "drop_unknown_qp",
    /// To QP 0, which RoCE does not have, or to QP 1 but not a management datagram.
    SpecialQp = "drop_special_qp",
    /// To QP 1, without its Q_Key.
    GsiQkey = "drop_gsi_qkey",
    /// To QP 1, while too many of its answers wait to be sent.
    GsiFull = "drop_gsi_full",
    /// The QP is connected to another address.
    WrongAddress = "drop_wrong_address",
    /// Multicast to a group that no QP is attached to, or to a unicast address.
    Multicast = "drop_multicast",
}
