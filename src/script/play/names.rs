//! What the names of a script stand for.

use std::collections::BTreeMap;

use super::Result;
use crate::statement::{Piece, Value};
use crate::target::{Keys, QpNumbers, Sge, Trouble};

#[derive(Default)]
pub struct Names {
    pub qps: Vec<(String, QpNumbers)>,
    pub srqs: BTreeMap<String, u32>,
    pub regions: BTreeMap<String, Keys>,
    pub windows: BTreeMap<String, u32>,
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
        if field == "srq" {
            return self.srqs.get(name).map_or_else(|| unknown("SRQ", name), |number| Ok((*number).into()));
        }
        if let Some(&key) = self.windows.get(name) {
            return Ok(u64::from(key) ^ flip);
        }
        let keys = self.regions.get(name).map_or_else(|| unknown("memory", name), Ok)?;
        Ok(if field == "va" { keys.base.wrapping_add(offset) } else { u64::from(keys.rkey) ^ flip })
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
