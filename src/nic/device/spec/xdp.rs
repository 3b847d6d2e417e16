//! Devices on real interfaces: their options, and how they are opened.

use softrnic_xdp::{AttachChoice, BusyPoll, CopyChoice, Grant, XdpError, XdpLink, XdpOptions};

use super::{EVERY_DEVICE, LinkKind, SpecError, key_value, number, switch};
use softrnic_sys::environment;

/// Packets that one call of busy polling may process, as many as an interrupt may (`NAPI_POLL_WEIGHT`).
const BUSY_POLL_BUDGET: u32 = 64;

/// Parses the part of a specification after `xdp:`.
pub(super) fn link<'a>(
    interface: &str,
    options: impl Iterator<Item = &'a str>,
) -> Result<LinkKind, SpecError> {
    if interface.is_empty() {
        return Err(SpecError("xdp needs an interface: xdp:eth0".into()));
    }
    let mut xdp = XdpOptions::default();
    let mut grant = None;
    for option in options {
        let (key, value) = key_value(option)?;
        match (key, value) {
            ("attach", "best") => xdp.attach = AttachChoice::Best,
            ("attach", "native") => xdp.attach = AttachChoice::Native,
            ("attach", "skb") => xdp.attach = AttachChoice::Skb,
            ("copy", "best") => xdp.copy = CopyChoice::Best,
            ("copy", "copy") => xdp.copy = CopyChoice::Copy,
            ("copy", "zerocopy") => xdp.copy = CopyChoice::ZeroCopy,
            ("chunk", _) => xdp.chunk_size = number(key, value)?,
            ("rx", _) => xdp.rx_chunks = number(key, value)?,
            ("tx", _) => xdp.tx_slots = number(key, value)?,
            ("multibuffer", _) => xdp.multi_buffer = switch(key, value)?,
            ("wakeup", _) => xdp.need_wakeup = switch(key, value)?,
            ("busypoll", _) => {
                xdp.busy_poll = Some(BusyPoll { micros: number(key, value)?, budget: BUSY_POLL_BUDGET });
            }
            ("grant", _) if !value.is_empty() => grant = Some(value.to_owned()),
            ("queues", _) => {
                xdp.queues = value.split('.').map(|queue| number(key, queue)).collect::<Result<_, _>>()?;
            }
            _ => {
                return Err(SpecError(format!(
                    "xdp has no option '{option}': it has attach=best|native|skb, copy=best|copy|zerocopy, \
                     chunk, rx, tx, multibuffer, wakeup, busypoll (microseconds), queues (0.1.2) and grant (a \
                     socket); {EVERY_DEVICE}"
                )));
            }
        }
    }
    Ok(LinkKind::Xdp { interface: interface.into(), options: xdp, grant })
}

/// Opens the link, with a privileged helper if the specification or the environment names one.
pub(super) fn open(interface: &str, options: &XdpOptions, grant: Option<&str>) -> Result<XdpLink, XdpError> {
    let from_environment = environment::text("SOFTRNIC_GRANT");
    match grant.or(from_environment.as_deref()) {
        Some(socket) => XdpLink::with_grant(Grant::request(socket, interface, options)?, options),
        None => XdpLink::open(interface, options),
    }
}

#[cfg(test)]
mod tests;
