//! How the device is.

use std::net::IpAddr;

use softrnic_nic::verbs::{AsyncEvent, Context, Error, EventSource};

use crate::message::{Device, Memory, Port, State};

pub fn device(context: &Context) -> Result<Device, Error> {
    Ok(Device { mode: context.device().mode().to_owned(), address: context.address(), port: port(context)? })
}

pub fn state(context: &Context) -> Result<State, Error> {
    let memory = context.packet_memory()?.map(|audit| Memory {
        exact: audit.is_exact(),
        quiet: audit.is_quiet(),
        text: format!("{audit:?}"),
    });
    Ok(State { port: port(context)?, counters: context.statistics()?.into_iter().collect(), memory })
}

/// What an event is about, for people.
pub fn source(event: &AsyncEvent) -> String {
    match event.source {
        EventSource::Qp(_) => "qp",
        EventSource::Cq(_) => "cq",
        EventSource::Srq(_) => "srq",
        EventSource::Port => "port",
        EventSource::Device => "device",
    }
    .to_owned()
}

fn port(context: &Context) -> Result<Port, Error> {
    let attributes = context.port()?;
    let mut gids = std::collections::BTreeMap::new();
    for index in 0..context.gids_used()? {
        let gid: IpAddr = context.gid(index)?.to_ip();
        if !gid.is_unspecified() {
            gids.insert(index, gid);
        }
    }
    Ok(Port { state: format!("{:?}", attributes.state), active_mtu: attributes.active_mtu.bytes(), gids })
}
