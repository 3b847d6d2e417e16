//! What the codes of management datagrams are called.

use super::MgmtClass;
use super::cm::{CmBody, CmMessage};
use super::messages::{RejReason, Req, Served, SidrRep};

impl CmMessage<'_> {
    /// The attribute ids of connection management messages.
    pub const ATTRIBUTE_IDS: core::ops::RangeInclusive<u16> = 0x10..=0x1A;

    /// The name of the message with this attribute id.
    pub const fn name_of(attribute_id: u16) -> &'static str {
        match attribute_id {
            0x0001 => "ClassPortInfo",
            0x0010 => "REQ",
            0x0011 => "MRA",
            0x0012 => "REJ",
            0x0013 => "REP",
            0x0014 => "RTU",
            0x0015 => "DREQ",
            0x0016 => "DREP",
            0x0017 => "SIDR_REQ",
            0x0018 => "SIDR_REP",
            0x0019 => "LAP",
            0x001A => "APR",
            _ => "unknown message",
        }
    }

    /// The message's name.
    pub const fn name(&self) -> &'static str {
        match self.body() {
            CmBody::Req(_) => "REQ",
            CmBody::Mra(_) => "MRA",
            CmBody::Rej(_) => "REJ",
            CmBody::Rep(_) => "REP",
            CmBody::Rtu(_) => "RTU",
            CmBody::Dreq(_) => "DREQ",
            CmBody::Drep(_) => "DREP",
            CmBody::SidrReq(_) => "SIDR_REQ",
            CmBody::SidrRep(_) => "SIDR_REP",
            CmBody::Lap(_) => "LAP",
            CmBody::Apr(_) => "APR",
        }
    }
}

impl Req {
    /// The transport service by name.
    pub const fn transport_name(&self) -> &'static str {
        match (self.transport.get(), self.extended_transport.get()) {
            (0, _) => "RC",
            (1, _) => "UC",
            (2, _) => "RD",
            (_, 1) => "XRC",
            _ => "reserved",
        }
    }
}

impl Served {
    /// The message's name.
    pub const fn name(self) -> &'static str {
        match self.0.get() {
            0 => "REQ",
            1 => "REP",
            2 => "another message",
            _ => "reserved",
        }
    }
}

impl RejReason {
    /// The reason in words.
    pub const fn name(self) -> &'static str {
        match self.0 {
            1 => "no QP available",
            2 => "no EEC available",
            3 => "no resources available",
            4 => "timeout",
            5 => "unsupported request",
            6 => "invalid communication ID",
            7 => "invalid communication instance",
            8 => "invalid service ID",
            9 => "invalid transport service type",
            10 => "stale connection",
            11 => "RDC does not exist",
            12 => "primary remote port GID rejected",
            13 => "primary remote port LID rejected",
            14 => "invalid primary SL",
            15 => "invalid primary traffic class",
            16 => "invalid primary hop limit",
            17 => "invalid primary packet rate",
            18 => "alternate remote port GID rejected",
            19 => "alternate remote port LID rejected",
            20 => "invalid alternate SL",
            21 => "invalid alternate traffic class",
            22 => "invalid alternate hop limit",
            23 => "invalid alternate packet rate",
            24 => "port and CM redirection",
            25 => "port redirection",
            26 => "invalid path MTU",
            27 => "insufficient responder resources",
            28 => "consumer reject",
            29 => "RNR retry count reject",
            30 => "duplicate local communication ID",
            31 => "invalid class version",
            32 => "invalid primary flow label",
            33 => "invalid alternate flow label",
            35 => "vendor option not supported",
            _ => "reserved",
        }
    }
}

impl SidrRep<'_> {
    /// The status in words.
    pub const fn status_name(&self) -> &'static str {
        match self.status {
            0 => "valid QPN",
            1 => "service ID not supported",
            2 => "rejected by service provider",
            3 => "no QP available",
            4 => "redirect to another QP",
            5 => "version not supported",
            _ => "reserved",
        }
    }
}

impl MgmtClass {
    /// Its name, or `other`.
    pub const fn name(self) -> &'static str {
        match self.0 {
            0x01 | 0x81 => "subnet management",
            0x03 => "subnet administration",
            0x04 => "performance management",
            0x05 => "baseboard management",
            0x06 => "device management",
            0x07 => "communication management",
            0x08 => "SNMP tunnelling",
            0x09..=0x0F | 0x30..=0x4F => "vendor",
            _ => "other",
        }
    }
}
