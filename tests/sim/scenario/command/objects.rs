//! Lines that create, change and destroy objects.

use softrnic_memory::{Access, MwType};
use softrnic_nic::engine::ReceiveSource;
use softrnic_transport::{AttrMask, QpAccess, QpAttr, QpState, QpType};
use softrnic_wire::{Mtu, Psn, RnrTimer};

use crate::scenario::machine::Machine;
use crate::scenario::value::{Words, number, size};
use crate::world::ALL_ACCESS;

pub fn option(machine: &mut Machine, words: &mut Words<'_>) -> Result<(), String> {
    match words.next()? {
        "early" => machine.config.transport.early_retransmission = words.next()? == "on",
        "congestion" => machine.config.transport.congestion_control = words.next()? == "on",
        "read_chunk" => machine.config.transport.read_chunk = size(words.next()?)? as u32,
        "cnp_interval_us" => machine.config.transport.cnp_interval_us = words.number()? as u32,
        "safe_copies" => machine.config.safe_copies = words.next()? == "on",
        "cq" => machine.cq_places = words.number()? as usize,
        "hidden" => machine.options.sees_ip_header = words.next()? != "on",
        "window" => {
            let bytes = size(words.next()?)?;
            (machine.config.window.initial, machine.config.window.max) = (bytes, bytes);
        }
        other => return Err(format!("`{other}` is no option")),
    }
    Ok(())
}

pub fn qp(machine: &mut Machine, words: &mut Words<'_>) -> Result<(), String> {
    let name = words.next()?;
    let service = match words.next()? {
        "rc" => QpType::Rc,
        "uc" => QpType::Uc,
        "ud" => QpType::Ud,
        "xrc_ini" => QpType::XrcInitiator,
        "xrc_tgt" => QpType::XrcTarget,
        other => return Err(format!("`{other}` is no service")),
    };
    let mut attr = machine.attributes();
    let (mut depth, mut state) = (16, QpState::Rts);
    let mut receive = match service {
        QpType::XrcTarget => {
            machine.world();
            ReceiveSource::Xrc(machine.xrcd.ok_or("no domain")?)
        }
        QpType::XrcInitiator => ReceiveSource::None,
        _ => ReceiveSource::Own(16),
    };
    while let Some(word) = words.peek() {
        words.next()?;
        match word {
            "mtu" => attr.mtu = Mtu::from_bytes(words.number()? as u32).ok_or("no such MTU")?,
            "sq_psn" => attr.sq_psn = Psn::new(words.number()? as u32),
            "rq_psn" => attr.rq_psn = Psn::new(words.number()? as u32),
            "timeout" => attr.timeout = words.number()? as u8,
            "retry" => attr.retry_cnt = words.number()? as u8,
            "rnr_retry" => attr.rnr_retry = words.number()? as u8,
            "rnr_timer" => attr.min_rnr_timer = RnrTimer::new(words.number()? as u8),
            "rd" => attr.max_rd_atomic = words.number()? as u8,
            "dest_rd" => attr.max_dest_rd_atomic = words.number()? as u8,
            "access" => attr.access = access(words.next()?)?,
            "tos" => attr.path.tos = words.number()? as u8,
            "depth" => depth = words.number()? as usize,
            "receives" => receive = ReceiveSource::Own(words.number()? as usize),
            "srq" => {
                let srq = words.next()?;
                receive = ReceiveSource::Shared(machine.srqs.get(srq).ok_or("no such SRQ")?.key);
            }
            "state" => state = self::state(words.next()?)?,
            other => return Err(format!("`{other}` is no attribute")),
        }
    }
    machine.create_qp(name, service, receive, depth, attr, state)
}

fn access(list: &str) -> Result<QpAccess, String> {
    let mut access = QpAccess::default();
    for word in list.split('/') {
        match word {
            "read" => access.remote_read = true,
            "write" => access.remote_write = true,
            "atomic" => access.remote_atomic = true,
            "flush" => access.flush_global = true,
            "none" => {}
            other => return Err(format!("`{other}` is no access")),
        }
    }
    Ok(access)
}

pub fn state(word: &str) -> Result<QpState, String> {
    Ok(match word {
        "RESET" => QpState::Reset,
        "INIT" => QpState::Init,
        "RTR" => QpState::Rtr,
        "RTS" => QpState::Rts,
        "SQD" => QpState::Sqd,
        "SQE" => QpState::Sqe,
        "ERR" => QpState::Err,
        other => return Err(format!("`{other}` is no state")),
    })
}

pub fn srq(machine: &mut Machine, words: &mut Words<'_>, xrc: bool) -> Result<(), String> {
    let (name, places) = (words.next()?, words.number()?);
    let elsewhere = words.take("elsewhere");
    machine.create_srq(name, places as usize, xrc, elsewhere)
}

pub fn limit(machine: &mut Machine, words: &mut Words<'_>) -> Result<(), String> {
    let key = machine.srqs.get(words.next()?).ok_or("no such SRQ")?.key;
    let limit = words.number()? as usize;
    machine.node().engine.set_srq_limit(key, limit).map_err(|error| error.to_string())
}

pub fn mr(machine: &mut Machine, words: &mut Words<'_>) -> Result<(), String> {
    let (name, len) = (words.next()?, size(words.next()?)?);
    let mut access = ALL_ACCESS;
    let mut other_pd = false;
    while let Some(word) = words.peek() {
        words.next()?;
        match word {
            "readonly" => access = Access::REMOTE_READ,
            "local" => access = Access::LOCAL_WRITE,
            "none" => access = Access::empty(),
            "without" => {
                access &= !match words.next()? {
                    "write" => Access::REMOTE_WRITE,
                    "read" => Access::REMOTE_READ,
                    "atomic" => Access::REMOTE_ATOMIC,
                    "flush" => Access::FLUSH_GLOBAL,
                    "bind" => Access::MW_BIND,
                    other => return Err(format!("`{other}` is no access")),
                }
            }
            "zero" => access |= Access::ZERO_BASED,
            "on_demand" => access |= Access::ON_DEMAND,
            "elsewhere" => other_pd = true,
            other => return Err(format!("`{other}` is no kind of region")),
        }
    }
    machine.create_mr(name, len, access, other_pd)
}

pub fn mw(machine: &mut Machine, words: &mut Words<'_>) -> Result<(), String> {
    let (name, kind) = (words.next()?, words.number()?);
    let kind = if kind == 1 { MwType::Type1 } else { MwType::Type2 };
    let node = machine.node();
    let rkey = node.engine.memory().alloc_mw(node.pd, kind).map_err(|error| error.to_string())?;
    machine.windows.insert(name.into(), rkey.0);
    Ok(())
}

pub fn deregister(machine: &mut Machine, words: &mut Words<'_>) -> Result<(), String> {
    let memory = *machine.memory.get(words.next()?).ok_or("no such memory")?;
    machine.node().engine.memory().dereg_mr(memory.region.lkey).map_err(|error| error.to_string())
}

pub fn modify(machine: &mut Machine, words: &mut Words<'_>) -> Result<(), String> {
    let name = words.next()?.to_string();
    let state = state(words.next()?)?;
    let mut mask = AttrMask::STATE;
    let actor = machine.actor(&name)?;
    let (key, service, mut attr) = (actor.handle.key, actor.service, actor.attr);
    match state {
        QpState::Sqd if words.take("notify") => {
            mask = mask.union(AttrMask::EN_SQD_ASYNC_NOTIFY);
            attr.sqd_notify = true;
        }
        QpState::Init | QpState::Rtr => mask = crate::world::mask_to(service, state),
        QpState::Rts if machine.node().state(key) == QpState::Rtr => {
            mask = crate::world::mask_to(service, state);
        }
        _ => {}
    }
    let refused = words.take("refused");
    let world = machine.world();
    let now = world.now;
    let result = world.nodes[0].engine.modify_qp(now, key, mask, &QpAttr { state, ..attr });
    machine.settle();
    match (result, refused) {
        (Ok(()), false) | (Err(_), true) => Ok(()),
        (Ok(()), true) => Err("was not refused".into()),
        (Err(error), false) => Err(error.to_string()),
    }
}

pub fn destroy(machine: &mut Machine, words: &mut Words<'_>) -> Result<(), String> {
    let name = words.next()?;
    if let Some(key) = machine.srqs.get(name).map(|srq| srq.key) {
        return machine.node().engine.destroy_srq(key).map(drop).map_err(|error| error.to_string());
    }
    let key = machine.actor(name)?.handle.key;
    let world = machine.world();
    let now = world.now;
    world.nodes[0].engine.destroy_qp(now, key).map_err(|error| error.to_string())?;
    machine.settle();
    Ok(())
}

/// `NAME+OFFSET` as an address, or `NAME` as a key, with `^BITS` to falsify it; or a number.
pub fn address_or_key(machine: &mut Machine, field: &str, word: &str) -> Result<u64, String> {
    let (word, flip) = word.split_once('^').unwrap_or((word, "0"));
    let flip = number(flip)?;
    let (name, offset) = match word.split_once('+') {
        Some((name, offset)) => (name, number(offset)?),
        None => match word.split_once('-') {
            Some((name, offset)) => (name, number(offset)?.wrapping_neg()),
            None => (word, 0),
        },
    };
    if let Some(&key) = machine.windows.get(name) {
        return Ok(u64::from(key) ^ flip);
    }
    let Some(memory) = machine.memory.get(name) else { return number(word) };
    match field {
        "va" => Ok(memory.region.base.wrapping_add(offset)),
        "lkey" => Ok(u64::from(memory.region.lkey.0) ^ flip),
        _ => Ok(u64::from(memory.region.rkey.0) ^ flip),
    }
}
