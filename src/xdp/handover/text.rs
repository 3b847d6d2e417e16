//! The text of a hand-over. Requests and descriptions have one fact per line, in a fixed order, and end with an empty
//! line. A wish is one line.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::grant::GrantDescription;
use crate::options::{AttachMode, CopyChoice, XdpOptions};
use softrnic_af_xdp::QueueLayout;

/// What an application may choose: not where the program is attached, the queues or busy polling.
pub(super) fn write_request(interface: &str, options: &XdpOptions) -> String {
    let XdpOptions { copy, chunk_size, rx_chunks, tx_slots, multi_buffer, need_wakeup, addresses, .. } =
        options;
    let copy = match copy {
        CopyChoice::Best => "best",
        CopyChoice::ZeroCopy => "zerocopy",
        CopyChoice::Copy => "copy",
    };
    let addresses = joined(addresses);
    format!(
        "grant {interface}\ncopy {copy}\nchunk {chunk_size}\nrx {rx_chunks}\ntx {tx_slots}\n\
         multi_buffer {multi_buffer}\nwakeup {need_wakeup}\naddresses {addresses}\n\n"
    )
}

/// The interface, and options. Those that an application may not choose have their default.
pub(super) fn read_request(text: &str) -> Option<(String, XdpOptions)> {
    let mut facts = Facts(text.strip_suffix("\n\n")?.split('\n'));
    let interface = facts.next("grant")?.to_owned();
    let options = XdpOptions {
        copy: match facts.next("copy")? {
            "best" => CopyChoice::Best,
            "zerocopy" => CopyChoice::ZeroCopy,
            "copy" => CopyChoice::Copy,
            _ => return None,
        },
        chunk_size: facts.parsed("chunk")?,
        rx_chunks: facts.parsed("rx")?,
        tx_slots: facts.parsed("tx")?,
        multi_buffer: facts.parsed("multi_buffer")?,
        need_wakeup: facts.parsed("wakeup")?,
        addresses: list(facts.next("addresses")?)?,
        ..XdpOptions::default()
    };
    facts.0.next().is_none().then_some((interface, options))
}

pub(super) fn write_description(description: &GrantDescription) -> String {
    let GrantDescription { ifindex, interface, attach, zero_copy, multi_buffer, busy_poll, .. } = description;
    let GrantDescription { chunk_size, max_frame, queues, refused, .. } = description;
    let attach = match attach {
        AttachMode::Native => "native",
        AttachMode::Skb => "skb",
    };
    let queues: Vec<String> = queues
        .iter()
        .map(|QueueLayout { queue, rx_chunks, tx_slots }| format!("{queue}:{rx_chunks}:{tx_slots}"))
        .collect();
    let queues = queues.join(" ");
    let mut text = format!(
        "granted\nifindex {ifindex}\ninterface {interface}\nattach {attach}\nzero_copy {zero_copy}\n\
         multi_buffer {multi_buffer}\nbusy_poll {busy_poll}\nchunk {chunk_size}\nframe {max_frame}\n\
         queues {queues}\n"
    );
    for reason in refused {
        text.push_str(&format!("refused {}\n", reason.replace('\n', " ")));
    }
    text.push('\n');
    text
}

/// A valid description. The first line, `granted`, is not part of it.
pub(super) fn read_description(text: &str) -> Option<GrantDescription> {
    let mut facts = Facts(text.strip_suffix("\n\n")?.split('\n'));
    let description = GrantDescription {
        ifindex: facts.parsed("ifindex")?,
        interface: facts.next("interface")?.to_owned(),
        attach: match facts.next("attach")? {
            "native" => AttachMode::Native,
            "skb" => AttachMode::Skb,
            _ => return None,
        },
        zero_copy: facts.parsed("zero_copy")?,
        multi_buffer: facts.parsed("multi_buffer")?,
        busy_poll: facts.parsed("busy_poll")?,
        chunk_size: facts.parsed("chunk")?,
        max_frame: facts.parsed("frame")?,
        queues: items(facts.next("queues")?).map(layout).collect::<Option<_>>()?,
        refused: facts
            .0
            .map(|line| line.strip_prefix("refused ").map(str::to_owned))
            .collect::<Option<_>>()?,
    };
    description.is_sane().then_some(description)
}

/// What an application asks the helper for later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    /// Steer datagrams for a group.
    Join(IpAddr),
    /// Stop steering them.
    Leave(IpAddr),
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wish::Join(group) => writeln!(f, "join {group}"),
            Wish::Leave(group) => writeln!(f, "leave {group}"),
        }
    }
}

/// Only groups can be wished for: the application does not decide which of the machine's addresses are steered.
impl FromStr for Wish {
    type Err = ();

    fn from_str(line: &str) -> Result<Wish, ()> {
        let (verb, group) = line.split_once(' ').ok_or(())?;
        let group = IpAddr::from_str(group).ok().filter(IpAddr::is_multicast).ok_or(())?;
        match verb {
            "join" => Ok(Wish::Join(group)),
            "leave" => Ok(Wish::Leave(group)),
            _ => Err(()),
        }
    }
}

fn layout(text: &str) -> Option<QueueLayout> {
    let mut numbers = text.split(':').map(|number| number.parse().ok());
    let mut next = || numbers.next().flatten();
    let layout = QueueLayout { queue: next()?, rx_chunks: next()?, tx_slots: next()? };
    numbers.next().is_none().then_some(layout)
}

/// Lines that each begin with the name of a fact.
struct Facts<'a>(std::str::Split<'a, char>);

impl<'a> Facts<'a> {
    fn next(&mut self, name: &str) -> Option<&'a str> {
        self.0.next()?.strip_prefix(name)?.strip_prefix(' ')
    }

    fn parsed<T: FromStr>(&mut self, name: &str) -> Option<T> {
        self.next(name)?.parse().ok()
    }
}

fn joined(items: &[impl ToString]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// Items separated by spaces; none in an empty text.
fn list<T: FromStr>(text: &str) -> Option<Vec<T>> {
    items(text).map(|item| item.parse().ok()).collect()
}

fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(' ').filter(|item| !item.is_empty())
}

#[cfg(test)]
mod tests;
