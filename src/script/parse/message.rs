//! Messages of the connection manager as lines give them.

use super::value;
use crate::message::{MessageKind, field};
use crate::statement::Message;
use crate::target::Seal;
use crate::words::Words;

/// What follows `CM`.
pub fn message(words: &mut Words<'_>) -> Result<Message, String> {
    let name = words.next()?;
    let known = MessageKind::NAMES.iter().find(|(known, _)| *known == name);
    let &(_, kind) = known.ok_or_else(|| format!("`{name}` is not a message of the connection manager"))?;
    let of = words.name()?;
    let mut told =
        Message { kind, of, fields: Vec::new(), again: false, seal: Seal::Good, stranger: false, len: None };
    while let Some(word) = words.following() {
        match word {
            "again" => told.again = true,
            "badicrc" => told.seal = Seal::Bad,
            "stranger" => told.stranger = true,
            "len" => told.len = Some(words.number()?),
            name @ ("gsi_qkey" | "gsi_pkey") => {
                let name = if name == "gsi_qkey" { "gsi_qkey" } else { "gsi_pkey" };
                told.fields.push((name, value(words.next()?)?));
            }
            name => {
                let name = field(kind, name).ok_or_else(|| format!("`{name}` is not a field of it"))?;
                told.fields.push((name, value(words.next()?)?));
            }
        }
    }
    Ok(told)
}
