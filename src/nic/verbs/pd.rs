//! Protection domains.

use std::sync::Arc;

use softrnic_memory::{Access, MrSpec, MwType, PdId};
use softrnic_transport::QpType;
use softrnic_wire::Rkey;

use super::address::{AddressHandle, AddressVector};
use super::context::Context;
use super::cq::Cq;
use super::error::Error;
use super::mr::{Mr, RawMr};
use super::qp::{Qp, QpOptions};
use super::srq::{Srq, SrqOptions};

/// A protection domain: only its QPs can use what is registered in it.
pub struct Pd {
    context: Context,
    id: PdId,
}

impl Pd {
    pub(crate) fn new(context: Context) -> Result<Arc<Pd>, Error> {
        let id = context.nic().control(|core, _| core.engine.memory().alloc_pd())??;
        Ok(Arc::new(Pd { context, id }))
    }

    /// The context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Its id in the memory table.
    pub fn id(&self) -> PdId {
        self.id
    }

    /// Resolves an address vector once, for any number of datagrams.
    ///
    /// # Errors
    /// The GID table has no such entry, the destination is of another address family, or there are `max_ah` already.
    pub fn create_ah(&self, address: &AddressVector) -> Result<AddressHandle, Error> {
        self.context.create_ah(self.id, address)
    }

    /// Registers bytes, which the region owns from now on.
    ///
    /// # Errors
    /// The access flags contradict each other, or a limit is reached.
    pub fn register(self: &Arc<Self>, bytes: impl Into<Box<[u8]>>, access: Access) -> Result<Mr, Error> {
        Mr::new(self.clone(), bytes.into(), access)
    }

    /// Registers memory that the caller owns.
    ///
    /// # Errors
    /// Those of the memory table.
    pub fn register_raw(self: &Arc<Self>, spec: MrSpec) -> Result<RawMr, Error> {
        self.context.check_access(spec.access)?;
        RawMr::new(self.clone(), spec)
    }

    /// Creates a reliable connected QP.
    ///
    /// # Errors
    /// A limit is reached.
    pub fn create_rc_qp(
        self: &Arc<Self>,
        send_cq: &Arc<Cq>,
        recv_cq: &Arc<Cq>,
        options: QpOptions,
    ) -> Result<Arc<Qp>, Error> {
        self.create_qp(QpType::Rc, send_cq, recv_cq, options)
    }

    /// Creates a QP.
    ///
    /// # Errors
    /// A limit is reached, or the options do not fit the service.
    pub fn create_qp(
        self: &Arc<Self>,
        service: QpType,
        send_cq: &Arc<Cq>,
        recv_cq: &Arc<Cq>,
        options: QpOptions,
    ) -> Result<Arc<Qp>, Error> {
        Qp::new(self.clone(), service, send_cq.clone(), recv_cq.clone(), options)
    }

    /// Creates a shared receive queue.
    ///
    /// # Errors
    /// A limit is reached.
    pub fn create_srq(self: &Arc<Self>, options: SrqOptions) -> Result<Arc<Srq>, Error> {
        Srq::new(self.clone(), options)
    }

    /// Creates a memory window, and returns its key.
    ///
    /// # Errors
    /// A limit is reached.
    pub fn alloc_mw(&self, mw_type: MwType) -> Result<Rkey, Error> {
        if let Some(model) = self.context.model() {
            match mw_type {
                MwType::Type1 if !model.features.windows_1 => {
                    return Err(model.lacks("memory windows of type 1").into());
                }
                MwType::Type2 if !model.features.windows_2 => {
                    return Err(model.lacks("memory windows of type 2").into());
                }
                _ => {}
            }
        }
        Ok(self.context.nic().control(|core, _| core.engine.memory().alloc_mw(self.id, mw_type))??)
    }

    /// Destroys a memory window.
    ///
    /// # Errors
    /// There is no such window.
    pub fn dealloc_mw(&self, mw: Rkey) -> Result<(), Error> {
        Ok(self.context.nic().control(|core, now| {
            let memory = core.engine.memory();
            memory.note_time(now);
            memory.dealloc_mw(mw)
        })??)
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // What is registered in it keeps it alive.
        let _ = self.context.nic().control(|core, _| core.engine.memory().dealloc_pd(self.id));
    }
}
