//! Work requests as lines give them.

use super::{piece, value};
use crate::statement::{Act, Kind, Piece, Post};
use crate::words::{Words, number};

fn pieces(list: &str) -> Result<Vec<Piece>, String> {
    list.split(',').map(piece).collect()
}

pub fn receive(words: &mut Words<'_>) -> Result<Act, String> {
    let queue = words.name()?;
    words.take("wr");
    let wr = words.number()?;
    let pieces = words.following().map_or(Ok(Vec::new()), pieces)?;
    Ok(Act::Receive { queue, wr, pieces })
}

pub fn post(words: &mut Words<'_>) -> Result<Post, String> {
    let qp = words.name()?;
    let kind = match words.next()? {
        "send" => Kind::Send,
        "write" => Kind::Write,
        "read" => Kind::Read,
        "cas" => Kind::CompareSwap,
        "fadd" => Kind::FetchAdd,
        "awrite" => Kind::AtomicWrite,
        "flush" => Kind::Flush,
        "datagram" => Kind::Datagram,
        "invalidate" => Kind::Invalidate,
        "fastreg" => Kind::FastRegister,
        "bind" => Kind::Bind,
        other => return Err(format!("`{other}` is nothing that can be posted")),
    };
    let mut post = Post {
        qp,
        kind,
        wr: 0,
        pieces: Vec::new(),
        inline: None,
        to: None,
        key: None,
        srq: None,
        imm: None,
        invalidate: None,
        first: 0,
        second: 0,
        whole: false,
        fence: false,
        solicited: false,
        signaled: true,
    };
    while let Some(word) = words.following() {
        match word {
            "wr" => post.wr = words.number()?,
            "fence" => post.fence = true,
            "solicited" => post.solicited = true,
            "unsignaled" => post.signaled = false,
            "srq" => post.srq = Some(value(words.next()?)?),
            "imm" => post.imm = Some(words.number()?),
            "invalidate" => post.invalidate = Some(words.number()?),
            "to" | "from" => post.to = Some(value(words.next()?)?),
            "key" => post.key = Some(value(words.next()?)?),
            "compare" | "length" | "qkey" | "tag" => post.first = words.number()?,
            "swap" | "add" | "dest" => post.second = words.number()?,
            "whole" => post.whole = true,
            "inline" => {
                let (id, len) = words.next()?.split_once(':').ok_or("inline is PATTERN:LENGTH")?;
                post.inline = Some((number(id)?, number(len)?));
            }
            list => post.pieces = pieces(list)?,
        }
    }
    if kind == Kind::Bind && post.pieces.len() != 1 {
        return Err("a window is bound to one piece of memory".into());
    }
    Ok(post)
}
