//! What the names of a script stand for.

use std::collections::BTreeMap;

use super::Result;
use softrnic_wire::MAD_LEN;

use crate::message::MessageKind;
use crate::statement::{Piece, Value};
use crate::target::{Keys, QpNumbers, Served, Sge, Trouble};

#[derive(Default)]
pub struct Names {
    pub qps: Vec<(String, QpNumbers)>,
    pub srqs: BTreeMap<String, u32>,
    pub regions: BTreeMap<String, Keys>,
    pub windows: BTreeMap<String, u32>,
    served: Option<Served>,
    connections: Vec<Connection>,
}

/// A connection that the script asks the NIC's server for.
pub struct Connection {
    pub name: String,
    /// Its number and the QP of it on the script's side.
    pub ours: u32,
    pub qpn: u32,
    /// The same of the NIC, once it has told them, and the PSN that it expects first.
    pub theirs: Option<u32>,
    pub their_qpn: u32,
    pub their_psn: u32,
    /// The last message of each kind to the NIC, and from it.
    pub sent: BTreeMap<MessageKind, [u8; MAD_LEN]>,
    pub seen: BTreeMap<MessageKind, [u8; MAD_LEN]>,
    pub was_asked: bool,
    /// The NIC knows that it is over.
    pub ended: bool,
}

fn unknown<T>(what: &str, name: &str) -> Result<T> {
    Err(Trouble::Broken(format!("there is no {what} `{name}`")))
}

impl Names {
    pub fn qp(&self, name: &str) -> Result<QpNumbers> {
        let found = self.qps.iter().find(|(known, _)| known == name);
        found.map_or_else(|| unknown("QP", name), |(_, numbers)| Ok(*numbers))
    }

    /// The QP of lines that name none.
    pub fn first(&self) -> Result<QpNumbers> {
        self.qps.first().map(|(_, numbers)| *numbers).ok_or_else(|| Trouble::Broken("there is no QP".into()))
    }

    /// What a value is in this field of a packet or a work request.
    pub fn value(&self, field: &str, value: &Value) -> Result<u64> {
        let (name, offset, flip) = match value {
            Value::Number(number) => return Ok(*number),
            Value::Name { name, offset, flip } => (name, *offset, *flip),
        };
        if field == "psn" {
            let first = u64::from(self.connection(name)?.their_psn);
            return Ok(first.wrapping_add(offset) & 0xFF_FFFF);
        }
        if field == "srq" {
            return self.srqs.get(name).map_or_else(|| unknown("SRQ", name), |number| Ok((*number).into()));
        }
        if let Some(&key) = self.windows.get(name) {
            return Ok(u64::from(key) ^ flip);
        }
        let keys = self.regions.get(name).map_or_else(|| unknown("memory", name), Ok)?;
        Ok(if field == "va" { keys.base.wrapping_add(offset) } else { u64::from(keys.rkey) ^ flip })
    }

    /// There is a server from now on.
    pub fn serve(&mut self, served: Served) {
        self.served = Some(served);
    }

    pub fn served(&self) -> Result<Served> {
        self.served.ok_or_else(|| Trouble::Broken("there is no server".into()))
    }

    pub fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.connections.iter()
    }

    pub fn connections_mut(&mut self) -> impl Iterator<Item = &mut Connection> {
        self.connections.iter_mut()
    }

    /// Gives a connection that was not named before its numbers.
    pub fn introduce(&mut self, name: &str) -> Result {
        let served = self.served()?;
        if self.connections.iter().any(|known| known.name == name) {
            return Ok(());
        }
        let number = self.connections.len() as u32;
        self.connections.push(Connection {
            name: name.into(),
            ours: served.first_id + number,
            qpn: served.first_qpn + number,
            theirs: None,
            their_qpn: 0,
            their_psn: 0,
            sent: BTreeMap::new(),
            seen: BTreeMap::new(),
            was_asked: false,
            ended: false,
        });
        Ok(())
    }

    pub fn connection(&self, name: &str) -> Result<&Connection> {
        let found = self.connections.iter().find(|known| known.name == name);
        found.map_or_else(|| unknown("connection", name), Ok)
    }

    pub fn connection_mut(&mut self, name: &str) -> Result<&mut Connection> {
        let found = self.connections.iter_mut().find(|known| known.name == name);
        found.map_or_else(|| unknown("connection", name), Ok)
    }

    /// What a value is in this field of a message, of the NIC or to it. A name stands for what a connection has there.
    pub fn of_message(&self, kind: MessageKind, from_nic: bool, field: &str, value: &Value) -> Result<u64> {
        let (name, offset, flip) = match value {
            Value::Number(number) => return Ok(*number),
            Value::Name { name, offset, flip } => (name, *offset, *flip),
        };
        let served = self.served()?;
        let value = match field {
            "service" => served.service,
            "guid" | "info" => served.guid,
            "id" if !from_nic => self.connection(name)?.ours.into(),
            "remote" if from_nic => self.connection(name)?.ours.into(),
            "id" | "remote" => self.connection(name)?.theirs.unwrap_or(0).into(),
            "qpn" if kind == MessageKind::Req => self.connection(name)?.qpn.into(),
            "qpn" => self.connection(name)?.their_qpn.into(),
            _ => return unknown("such number of", name),
        };
        Ok(value.wrapping_add(offset) ^ flip)
    }

    pub fn sge(&self, piece: &Piece) -> Result<Sge> {
        let name = &piece.place.memory;
        let keys = self.regions.get(name).map_or_else(|| unknown("memory", name), Ok)?;
        let addr = keys.base.wrapping_add(piece.place.offset);
        Ok(Sge { addr, length: piece.len as u32, lkey: keys.lkey ^ piece.flip })
    }

    /// Gives a key its last byte, which a work request has chosen.
    pub fn tag(&mut self, name: &str, tag: u8) -> Result {
        let tagged = |key: u32| key & !0xFF | u32::from(tag);
        if let Some(keys) = self.regions.get_mut(name) {
            (keys.lkey, keys.rkey) = (tagged(keys.lkey), tagged(keys.rkey));
            return Ok(());
        }
        let Some(key) = self.windows.get_mut(name) else { return unknown("window", name) };
        *key = tagged(*key);
        Ok(())
    }
}
