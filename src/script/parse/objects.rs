//! Lines that set up, and make objects.

use super::state;
use crate::statement::{Access, MrSpec, QpSpec, Right, Service, Setting};
use crate::words::{Words, size};

pub fn option(words: &mut Words<'_>) -> Result<Setting, String> {
    Ok(match words.next()? {
        "early" => Setting::EarlyRetransmission(switch(words)?),
        "congestion" => Setting::Congestion(switch(words)?),
        "read_chunk" => Setting::ReadChunk(size(words.next()?)?),
        "cnp_interval_us" => Setting::CnpInterval(words.number()?),
        "safe_copies" => Setting::SafeCopies(switch(words)?),
        "cq" => Setting::CqPlaces(words.number()?),
        "hidden" => Setting::HiddenHeaders(switch(words)?),
        "window" => Setting::Window(size(words.next()?)?),
        "paths" => Setting::Paths(words.number()?),
        "recovery" => Setting::SelectiveRecovery(match words.next()? {
            "selective" => true,
            "gbn" => false,
            other => return Err(format!("recovery is selective or gbn, and not `{other}`")),
        }),
        other => return Err(format!("`{other}` is not an option")),
    })
}

fn switch(words: &mut Words<'_>) -> Result<bool, String> {
    match words.next()? {
        "on" => Ok(true),
        "off" => Ok(false),
        other => Err(format!("`{other}` is neither on nor off")),
    }
}

pub fn qp(words: &mut Words<'_>) -> Result<QpSpec, String> {
    let name = words.next()?;
    let service = match words.next()? {
        "rc" => Service::Rc,
        "uc" => Service::Uc,
        "ud" => Service::Ud,
        "xrc_ini" => Service::XrcInitiator,
        "xrc_tgt" => Service::XrcTarget,
        other => return Err(format!("`{other}` is not a service")),
    };
    let mut spec = QpSpec::new(name, service);
    while let Some(word) = words.following() {
        match word {
            "mtu" => {
                spec.mtu = words.number()?;
                if ![256, 512, 1024, 2048, 4096].contains(&spec.mtu) {
                    return Err(format!("there is no MTU of {}", spec.mtu));
                }
            }
            "sq_psn" => spec.sq_psn = words.number()?,
            "rq_psn" => spec.rq_psn = words.number()?,
            "timeout" => spec.timeout = words.number()?,
            "retry" => spec.retry_cnt = words.number()?,
            "rnr_retry" => spec.rnr_retry = words.number()?,
            "rnr_timer" => spec.min_rnr_timer = words.number()?,
            "rd" => spec.max_rd_atomic = words.number()?,
            "dest_rd" => spec.max_dest_rd_atomic = words.number()?,
            "access" => spec.access = access(words.next()?)?,
            "tos" => spec.tos = words.number()?,
            "depth" => spec.depth = words.number()?,
            "receives" => spec.receives = words.number()?,
            "srq" => spec.srq = Some(words.name()?),
            "state" => spec.state = state(words.next()?)?,
            other => return Err(format!("`{other}` is not an attribute")),
        }
    }
    Ok(spec)
}

/// Rights of a QP.
fn access(list: &str) -> Result<Access, String> {
    list.split('/').filter(|word| *word != "none").try_fold(Access::NONE, |access, word| {
        let right = remote_right(word).ok_or_else(|| format!("`{word}` is not an access right"))?;
        Ok(access.with(right))
    })
}

fn remote_right(word: &str) -> Option<Right> {
    match word {
        "read" => Some(Right::RemoteRead),
        "write" => Some(Right::RemoteWrite),
        "atomic" => Some(Right::RemoteAtomic),
        "flush" => Some(Right::Flush),
        _ => None,
    }
}

pub fn mr(words: &mut Words<'_>) -> Result<MrSpec, String> {
    let (name, len) = (words.name()?, size(words.next()?)?);
    let mut spec =
        MrSpec { name, len, access: Access::ALL, zero_based: false, on_demand: false, elsewhere: false };
    while let Some(word) = words.following() {
        match word {
            "readonly" => spec.access = Access::NONE.with(Right::RemoteRead),
            "local" => spec.access = Access::NONE.with(Right::LocalWrite),
            "none" => spec.access = Access::NONE,
            "without" => {
                let right = match words.next()? {
                    "bind" => Right::Bind,
                    word => remote_right(word).ok_or_else(|| format!("`{word}` is not an access right"))?,
                };
                spec.access = spec.access.without(right);
            }
            "zero" => spec.zero_based = true,
            "on_demand" => spec.on_demand = true,
            "elsewhere" => spec.elsewhere = true,
            other => return Err(format!("`{other}` is not a kind of region")),
        }
    }
    Ok(spec)
}
