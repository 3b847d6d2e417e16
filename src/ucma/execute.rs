//! Executes the commands.

use std::os::fd::RawFd;

use softrnic_cma::{Error, EventChannel};

use crate::answer;
use crate::command::{Command, Query};
use crate::errno::Errno;
use crate::user::Answer;

/// `IB_EVENT_COMM_EST`, the only event that an application may report.
const COMMUNICATION_ESTABLISHED: u32 = 4;

/// Executes a command on a channel. `channel_of` finds other channels by their descriptors.
pub fn execute(
    channel: &EventChannel,
    command: Command,
    channel_of: impl Fn(RawFd) -> Option<EventChannel>,
) -> Result<(), Errno> {
    match command {
        Command::CreateId { context, kind, answer } => {
            let id = channel.create_id(kind, context)?;
            number(answer, id.number()).inspect_err(|_| {
                let _ = id.destroy();
            })
        }
        Command::DestroyId { id, answer } => number(answer, channel.id(id)?.destroy()?),
        Command::Bind { id, address } => Ok(channel.id(id)?.bind(&address)?),
        Command::ResolveAddr { id, source, destination, timeout } => {
            Ok(channel.id(id)?.resolve_addr(source.as_ref(), &destination, timeout)?)
        }
        Command::ResolveRoute { id, timeout } => Ok(channel.id(id)?.resolve_route(timeout)?),
        Command::QueryRoute { id, answer } => answer.write(&answer::route(&channel.id(id)?.query()?)),
        Command::Query { id, query, answer } => {
            let known = channel.id(id)?.query()?;
            match query {
                Query::Addresses => answer.write(&answer::addresses(&known)),
                Query::Gids => answer.write(&answer::gids(&known)),
                Query::Paths => answer.write(&answer::paths(&known, answer.room())),
            }
        }
        Command::Connect { id, params } => Ok(channel.id(id)?.connect(&params)?),
        Command::Listen { id, backlog } => Ok(channel.id(id)?.listen(backlog)?),
        Command::Accept { id, context, params } => Ok(channel.id(id)?.accept(context, &params)?),
        Command::Establish { id } => Ok(channel.id(id)?.establish()?),
        Command::Reject { id, reason, private } => Ok(channel.id(id)?.reject(reason, &private)?),
        Command::Disconnect { id } => Ok(channel.id(id)?.disconnect()?),
        Command::InitQpAttr { id, state, answer } => {
            let (mut attributes, mask) = channel.id(id)?.qp_attributes(state)?;
            attributes.transport.state = state;
            answer.write(&answer::qp_attributes(&attributes, mask))
        }
        Command::SetOption { id, option } => Ok(channel.id(id)?.set_option(option)?),
        Command::Notify { id, event } => {
            let id = channel.id(id)?;
            if event == COMMUNICATION_ESTABLISHED { Ok(id.notify_established()?) } else { Err(Errno::INVAL) }
        }
        Command::Join { id, context, group, send_only, answer } => {
            let joined = channel.id(id)?.join_multicast(context, &group, send_only)?;
            number(answer, joined).inspect_err(|_| {
                let _ = channel.leave_multicast(joined);
            })
        }
        Command::Leave { group, answer } => number(answer, channel.leave_multicast(group)?),
        Command::Migrate { id, from, answer } => {
            let from = channel_of(from).ok_or(Errno::INVAL)?;
            number(answer, from.id(id)?.migrate(channel)?)
        }
        Command::WriteEvent { id, kind, status, argument } => {
            Ok(channel.id(id)?.write_event(kind, status, argument)?)
        }
        Command::Refused { id, errno } => {
            channel.id(id)?;
            Err(errno)
        }
        // The caller waits; see `GetEvent`.
        Command::GetEvent { .. } => Err(Errno::AGAIN),
    }
}

fn number(answer: Answer, number: u32) -> Result<(), Errno> {
    answer.write(&number.to_ne_bytes())
}

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        Errno(match error {
            Error::UnknownId => libc::ENOENT,
            Error::Invalid => libc::EINVAL,
            Error::AddressInUse => libc::EADDRINUSE,
            Error::AddressNotAvailable => libc::EADDRNOTAVAIL,
            Error::Denied => libc::EACCES,
            Error::NoDevice => libc::ENODEV,
            Error::NetworkUnreachable => libc::ENETUNREACH,
            Error::TimedOut => libc::ETIMEDOUT,
            Error::NoMemory => libc::ENOMEM,
            Error::NoDescriptor => libc::EMFILE,
            Error::NotSupported => libc::EOPNOTSUPP,
            Error::Unknown => libc::ENOSYS,
            Error::IsConnected => libc::EISCONN,
            Error::Gone => libc::EIO,
        })
    }
}
