//! Shared receive queues.

use std::sync::{Arc, Mutex, PoisonError};

use softrnic_wire::Srqn;

use super::context::Context;
use super::cq::Cq;
use super::error::{Error, PostError};
use super::pd::Pd;
use crate::device::EventSource;
use softrnic_engine::{ControlError, RecvRequest, SrqInit, SrqKey, SrqMemory, XrcdKey};
use softrnic_sync::queue::{Full, RecvRing};

/// Parameters of a new shared receive queue.
#[derive(Clone, Default)]
pub struct SrqOptions {
    /// Entries; at least one.
    pub max_wr: usize,
    /// For an XRC SRQ, its domain and the CQ that its receives complete to.
    pub xrc: Option<(XrcdKey, Arc<Cq>)>,
}

/// A shared receive queue.
pub struct Srq {
    pd: Arc<Pd>,
    key: SrqKey,
    srqn: Srqn,
    ring: Mutex<RecvRing<RecvRequest>>,
    _cq: Option<Arc<Cq>>,
}

impl Srq {
    pub(crate) fn new(pd: Arc<Pd>, options: SrqOptions) -> Result<Arc<Srq>, Error> {
        if options.max_wr == 0 || options.max_wr > pd.context().caps().max_srq_wr {
            return Err(ControlError::Invalid("an SRQ must have between 1 and max_srq_wr entries").into());
        }
        let xrc = options.xrc.as_ref().map(|(xrcd, cq)| (*xrcd, cq.key()));
        let init = SrqInit { pd: pd.id(), max_wr: options.max_wr, xrc };
        let sink = pd.context().sink();
        let parts = SrqMemory::new(options.max_wr)?;
        let made = pd.context().nic().control(|core, _| {
            core.routes.make_room()?;
            let made = core.engine.add_srq(init, parts)?;
            core.routes.add(EventSource::Srq(made.key), sink);
            Ok::<_, ControlError>(made)
        })??;
        let cq = options.xrc.map(|(_, cq)| cq);
        Ok(Arc::new(Srq { pd, key: made.key, srqn: made.srqn, ring: Mutex::new(made.receives), _cq: cq }))
    }

    /// Its number on the wire (XRC).
    pub fn srqn(&self) -> Srqn {
        self.srqn
    }

    /// What identifies it in asynchronous events.
    pub fn source(&self) -> EventSource {
        EventSource::Srq(self.key)
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// The queue is full.
    pub fn post_recv(&self, request: RecvRequest) -> Result<(), PostError> {
        self.post_recv_with(|| request, |_| Ok(()))
    }

    /// Posts a receive that `fill` completes in its place in the queue.
    ///
    /// # Errors
    /// The queue is full, or `fill` fails.
    #[inline]
    pub fn post_recv_with<E: From<Full>>(
        &self,
        request: impl FnOnce() -> RecvRequest,
        fill: impl FnOnce(&mut RecvRequest) -> Result<(), E>,
    ) -> Result<(), E> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner).push_with(request, fill)
    }

    /// Number of entries.
    pub fn max_wr(&self) -> usize {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner).capacity()
    }

    /// The armed limit; 0 if none is armed.
    ///
    /// # Errors
    /// The device has failed.
    pub fn limit(&self) -> Result<usize, Error> {
        Ok(self.context().nic().control(|core, _| core.engine.srq_limit(self.key))??)
    }

    /// Asks for an event when fewer than `limit` receives are left. Fires once.
    ///
    /// # Errors
    /// The limit exceeds the queue's size.
    pub fn set_limit(&self, limit: usize) -> Result<(), Error> {
        if limit > self.max_wr() {
            return Err(ControlError::Invalid("the limit exceeds the SRQ's size").into());
        }
        Ok(self.context().nic().control(|core, _| core.engine.set_srq_limit(self.key, limit))??)
    }

    /// Changes the number of entries.
    ///
    /// # Errors
    /// More is posted than the new size holds, or the limit exceeds it.
    pub fn resize(&self, max_wr: usize) -> Result<(), Error> {
        self.change(max_wr, None)
    }

    /// Changes the number of entries and the limit, or neither.
    ///
    /// # Errors
    /// As [`resize`](Self::resize).
    pub fn resize_with_limit(&self, max_wr: usize, limit: usize) -> Result<(), Error> {
        self.change(max_wr, Some(limit))
    }

    fn change(&self, max_wr: usize, limit: Option<usize>) -> Result<(), Error> {
        if let Some(model) = self.context().model()
            && !model.features.srq_resize
        {
            return Err(model.cannot_change("the size of an SRQ").into());
        }
        if max_wr == 0 || max_wr > self.context().caps().max_srq_wr {
            return Err(ControlError::Invalid("an SRQ must have between 1 and max_srq_wr entries").into());
        }
        let parts = SrqMemory::new(max_wr)?;
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let new =
            self.context().nic().control(|core, _| core.engine.resize_srq(self.key, parts, limit))??;
        ring.replace(new);
        Ok(())
    }

    pub(crate) fn key(&self) -> SrqKey {
        self.key
    }

    fn context(&self) -> &Context {
        self.pd.context()
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        // QPs keep their SRQ alive.
        let _ = self.context().nic().control(|core, _| {
            core.routes.remove(EventSource::Srq(self.key));
            core.engine.destroy_srq(self.key)
        });
        let source = self.source();
        self.context().forget_events(|event| event.source == source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceSpec;

    #[test]
    fn a_limit_that_is_refused_leaves_the_size_as_it_was() {
        let context = Context::open(&DeviceSpec::default()).expect("a device");
        let pd = context.alloc_pd().expect("a PD");
        let srq = pd.create_srq(SrqOptions { max_wr: 8, xrc: None }).expect("an SRQ");
        assert!(srq.resize_with_limit(16, 17).is_err());
        assert_eq!((srq.max_wr(), srq.limit().expect("a limit")), (8, 0));
        srq.resize_with_limit(16, 12).expect("both");
        assert_eq!((srq.max_wr(), srq.limit().expect("a limit")), (16, 12));
        assert!(srq.resize(4).is_err(), "the limit is beyond it");
        srq.resize_with_limit(4, 2).expect("both are smaller");
        assert_eq!((srq.max_wr(), srq.limit().expect("a limit")), (4, 2));
    }
}
