//! Completion queues.

use std::sync::{Arc, Mutex, PoisonError};

use softrnic_wire::Qpn;

use super::channel::CompletionChannel;
use super::context::Context;
use super::error::Error;
use crate::device::EventSource;
use softrnic_engine::{ControlError, CqKey, CqMemory, Cqe};
use softrnic_sync::notify::Arming;
use softrnic_sync::queue::CompletionRing;

/// A completion queue.
pub struct Cq {
    context: Context,
    key: CqKey,
    ring: Mutex<CompletionRing<Cqe>>,
    arming: Arming,
    channel: Option<Arc<CompletionChannel>>,
    token: u64,
    /// Whether polling frees slots of send queues.
    frees_slots: bool,
}

impl Cq {
    /// `token` is what the channel's events carry for this CQ; by default a number of its own.
    pub fn new(
        context: Context,
        depth: usize,
        channel: Option<Arc<CompletionChannel>>,
        token: Option<u64>,
    ) -> Result<Arc<Cq>, Error> {
        let depth = entries(&context, depth)?;
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        let token = token.unwrap_or_else(|| NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        let notify = channel.as_ref().map(|channel| channel.notify(token));
        let sink = context.sink();
        let parts = CqMemory::new(depth)?;
        let (key, ring, arming) = context.nic().control(|core, _| {
            core.routes.make_room()?;
            let made = core.engine.add_cq(parts, notify)?;
            core.routes.add(EventSource::Cq(made.0), sink);
            Ok::<_, ControlError>(made)
        })??;
        let frees_slots = context.device().held_slots.is_some();
        Ok(Arc::new(Cq { context, key, ring: Mutex::new(ring), arming, channel, token, frees_slots }))
    }

    /// What the channel's events carry for this CQ.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// What identifies it in asynchronous events.
    pub fn source(&self) -> EventSource {
        EventSource::Cq(self.key)
    }

    /// What identifies it among all of the process: the number of its NIC, and what that calls it.
    pub fn identity(&self) -> (u64, CqKey) {
        (self.context.nic().number(), self.key)
    }

    /// Takes up to `completions.len()` completions and returns their number.
    pub fn poll(&self, completions: &mut [Cqe]) -> usize {
        let mut found = 0;
        self.poll_with(completions.len(), |cqe| {
            completions[found] = cqe;
            found += 1;
        })
    }

    /// Takes up to `most` completions, in order, and returns their number. Services the NIC if the queue is empty.
    pub fn poll_with(&self, most: usize, take: impl FnMut(Cqe)) -> usize {
        if most == 0 {
            return 0;
        }
        if self.frees_slots {
            return self.poll_freeing(most, take);
        }
        self.take(most, take)
    }

    /// The same on a device where that frees slots of send queues.
    #[cold]
    #[inline(never)]
    fn poll_freeing(&self, most: usize, mut take: impl FnMut(Cqe)) -> usize {
        let device = self.context.device();
        self.take(most, |cqe| {
            device.held_slots.iter().for_each(|held| held.see(&cqe));
            take(cqe);
        })
    }

    #[inline(always)]
    fn take(&self, most: usize, mut take: impl FnMut(Cqe)) -> usize {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = drain(&mut ring, most, &mut take);
        drop(ring);
        if self.context.nic().on_poll(found > 0) && found == 0 {
            let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
            found = drain(&mut ring, most, &mut take);
        }
        found
    }

    /// Asks for one event at the next completion, or only at the next solicited or failed one. Poll once more
    /// afterwards: completions already there do not fire.
    pub fn arm(&self, solicited_only: bool) {
        self.arming.arm(solicited_only);
        self.context.nic().on_arm();
    }

    /// The channel that it reports to.
    pub fn channel(&self) -> Option<&Arc<CompletionChannel>> {
        self.channel.as_ref()
    }

    /// Whether any completion was ever polled.
    pub fn was_polled(&self) -> bool {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner).was_used()
    }

    /// Completions that wait to be polled.
    pub fn waiting(&self) -> usize {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Number of entries.
    pub fn depth(&self) -> usize {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner).capacity()
    }

    /// Changes the number of entries.
    ///
    /// # Errors
    /// More completions wait than the new size holds.
    pub fn resize(&self, depth: usize) -> Result<(), Error> {
        let parts = CqMemory::new(entries(&self.context, depth)?)?;
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let resize =
            self.context.nic().control(|core, _| core.engine.resize_cq(self.key, parts, &mut ring))?;
        Ok(resize.map(drop)?)
    }

    /// Drops the completions of a QP that was reset: its new life must not see them.
    pub(crate) fn purge(&self, qpn: Qpn) {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner).retain(|cqe| cqe.qpn != qpn);
    }

    pub(crate) fn key(&self) -> CqKey {
        self.key
    }
}

/// As many entries as the device that is imitated gives, or as common hardware gives: at least one more than requested. Programs rely on that without knowing.
/// `ib_send_lat -e` asks for one; when the answer to a message overtakes its lost ACK, it needs two.
fn entries(context: &Context, depth: usize) -> Result<usize, Error> {
    let most = context.caps().max_cqe;
    if depth == 0 || depth > most {
        return Err(ControlError::Invalid("a CQ must have between 1 and max_cqe entries").into());
    }
    Ok(context.cq_depth(depth)?.unwrap_or_else(|| (depth + 1).next_power_of_two()).min(most))
}

fn drain(ring: &mut CompletionRing<Cqe>, most: usize, mut take: impl FnMut(Cqe)) -> usize {
    let mut found = 0;
    while found < most && ring.pop_with(|cqe| take(*cqe)).is_some() {
        found += 1;
    }
    found
}

impl Drop for Cq {
    fn drop(&mut self) {
        // Nothing reports here any longer: QPs and SRQs keep their CQs alive.
        let _ = self.context.nic().control(|core, _| {
            core.routes.remove(EventSource::Cq(self.key));
            core.engine.destroy_cq(self.key)
        });
        if let Some(channel) = &self.channel {
            channel.forget(self.token);
        }
        let source = self.source();
        self.context.forget_events(|event| event.source == source);
    }
}
