//! Packets as lines give them.

use super::value;
use crate::packet::{FLAGS, field, opcode};
use crate::statement::{Packet, Value};
use crate::target::Seal;
use crate::words::{Words, number};

pub fn packet(words: &mut Words<'_>) -> Result<Packet, String> {
    let mut name = words.name()?;
    while opcode(&name).is_none() || words.peek().is_some_and(|next| next == "with" || next == "Middle") {
        name = format!("{name} {}", words.next().map_err(|_| format!("`{name}` is not an opcode"))?);
    }
    let info = opcode(&name).ok_or_else(|| format!("`{name}` is not an opcode"))?;
    let mut told = Packet {
        info,
        fields: Vec::new(),
        len: 0,
        data: None,
        came: None,
        qp: None,
        seal: None,
        stranger: false,
        tos: None,
        path: None,
        raw_opcode: None,
    };
    while let Some(word) = words.following() {
        let mut syndrome = |code| told.fields.push(("syndrome", Value::Number(code)));
        match word {
            flag if FLAGS.contains(&flag) => {
                told.fields.push((field(flag).ok_or("no field")?, Value::Number(1)));
            }
            "len" => told.len = words.number()?,
            "data" => {
                let (id, offset) = words.next()?.split_once('@').ok_or("data is PATTERN@OFFSET")?;
                told.data = Some((number(id)?, number(offset)?));
            }
            "came" => {
                let psns = words.next()?.split(',').map(number);
                told.came = Some(psns.collect::<Result<_, _>>()?);
            }
            "ACK" => syndrome(0x1F),
            "SEQ" => syndrome(0x60),
            "INVALID" => syndrome(0x61),
            "ACCESS" => syndrome(0x62),
            "OPERATIONAL" => syndrome(0x63),
            "RNR" => syndrome(0x20 | words.number::<u64>()?),
            "for" => told.qp = Some(words.name()?),
            "badicrc" => told.seal = Some(Seal::Bad),
            "rxeicrc" | "rxe" => told.seal = Some(Seal::Rxe),
            "good" => told.seal = Some(Seal::Good),
            "stranger" => told.stranger = true,
            "tos" => told.tos = Some(words.number()?),
            "path" => told.path = Some(words.number()?),
            "byte" => told.raw_opcode = Some(words.number()?),
            name => {
                let name = field(name).ok_or_else(|| format!("`{name}` is not a field"))?;
                told.fields.push((name, value(words.next()?)?));
            }
        }
    }
    Ok(told)
}
