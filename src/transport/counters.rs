//! What a queue pair counts. Names follow rxe's hw_counters where they mean the same.

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal,)*) => {
        /// Something that a QP counts.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(usize)]
        pub enum Counter { $($(#[doc = $doc])* $variant,)* }

        impl Counter {
            /// All counters, in the order of their numbers.
            pub const ALL: &'static [Counter] = &[$(Counter::$variant,)*];

            /// The counter's name in statistics.
            pub const fn name(self) -> &'static str {
                match self { $(Counter::$variant => $name,)* }
            }

            /// What it counts, in a sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Counter::$variant => concat!($($doc),*).trim_ascii(),)* }
            }
        }
    };
}

counters! {
    /// Requests whose PSN was behind the expected one.
    DuplicateRequest = "duplicate_request",
    /// Requests whose PSN was ahead of the expected one.
    OutOfSeqRequest = "out_of_seq_request",
    /// RNR NAKs received.
    RcvdRnrErr = "rcvd_rnr_err",
    /// RNR NAKs sent.
    SendRnrErr = "send_rnr_err",
    /// NAKs for a PSN sequence error received.
    RcvdSeqErr = "rcvd_seq_err",
    /// NAKs for a PSN sequence error sent.
    SendSeqErr = "send_seq_err",
    /// NAKs other than sequence errors received.
    RcvdNak = "rcvd_nak",
    /// NAKs other than sequence errors sent.
    SendNak = "send_nak",
    /// QPs that ended because retries were used up.
    RetryExceededErr = "retry_exceeded_err",
    /// QPs that ended because RNR retries were used up.
    RetryRnrExceededErr = "retry_rnr_exceeded_err",
    /// Times that the requester went back to an earlier PSN.
    CompleterRetryErr = "completer_retry_err",
    /// Local ACK timeouts.
    Timeout = "local_ack_timeout_err",
    /// Early resends: nothing came for several round trips, and the local ACK timeout had not yet passed.
    EarlyRetransmit = "early_retransmit",
    /// Request packets sent more than once.
    RetransmittedPacket = "retransmitted_pkts",
    /// READ responses that did not come in order.
    ImpliedNakSeqErr = "implied_nak_seq_err",
    /// SENDs whose last packet has left, once each.
    RdmaSends = "rdma_sends",
    /// Receive WQEs completed.
    RdmaRecvs = "rdma_recvs",
    /// Packets that arrived in a state of the QP that does not accept them.
    DropState = "drop_qp_state",
    /// Packets of another transport than the QP's, or of a kind that it never accepts.
    DropOpcode = "drop_opcode",
    /// Requests dropped silently after a NAK, until the expected PSN arrives.
    DropAfterNak = "drop_after_nak",
    /// Requests dropped because too many responses were waiting.
    DropBusy = "drop_responder_busy",
    /// Duplicate READs and atomics for which nothing is saved any longer.
    DropDuplicateUnmatched = "drop_duplicate_unmatched",
    /// Duplicate requests whose answer is still queued or being sent.
    DropDuplicateWaiting = "drop_duplicate_waiting",
    /// Duplicate READs answered only in part, because the peer repeats them without making progress.
    DuplicateReadCut = "duplicate_read_cut",
    /// Responses that acknowledge nothing that is outstanding.
    DropGhostResponse = "drop_ghost_response",
    /// Responses with a reserved syndrome.
    DropReservedSyndrome = "drop_reserved_syndrome",
    /// Requests that came before their turn and were kept.
    KeptForLater = "kept_out_of_order",
    /// READ responses and answers to atomics that came before their turn.
    AnsweredOutOfOrder = "answered_out_of_order",
    /// Selective acknowledgements sent.
    SendSelectiveAck = "send_selective_ack",
    /// Selective acknowledgements received.
    RcvdSelectiveAck = "rcvd_selective_ack",
    /// Packets sent again because the peer reported others behind them.
    SelectiveResend = "selective_resends",
    /// Requests beyond the reorder window.
    DropReorderWindow = "drop_reorder_window",
    /// Requests before their turn for which the NIC had no room.
    DropReorderMemory = "drop_reorder_memory",
    /// Queue pairs that began to spread their packets over many paths.
    PathsAgreed = "paths_agreed",
    /// Times that a path was left because it lost packets.
    PathLeft = "path_left",
    /// Times that a path that had been left was used again.
    PathUsedAgain = "path_used_again",
    /// UC packets dropped because of a gap or wrong order.
    DropUcSequence = "drop_uc_sequence",
    /// UC requests that violate access rights or lengths.
    DropUcRequest = "drop_uc_request",
    /// UC and UD messages for which there was no receive WQE.
    DropNoRecv = "drop_no_recv",
    /// UD packets with another Q_Key than the QP's.
    DropQkey = "qkey_viol",
    /// UD packets longer than the port's MTU.
    DropUdLength = "drop_ud_length",
    /// UD messages longer than the next receive WQE.
    DropShortRecv = "drop_short_recv",
    /// Packets received with the congestion-experienced mark.
    EcnMarked = "np_ecn_marked_roce_packets",
    /// CNPs sent.
    CnpSent = "np_cnp_sent",
    /// CNPs that slowed a QP.
    CnpHandled = "rp_cnp_handled",
    /// CNPs for a QP that does not react to them.
    CnpIgnored = "rp_cnp_ignored",
}
